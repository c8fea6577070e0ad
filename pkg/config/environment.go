package config

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// envPrefix begins the names of all environment variables that override keys.
const envPrefix = "AKS_NODE_CONTROLLER_"

// envName returns the variable that overrides the key at path.
func envName(path string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(path, ".", "_"))
}

// override sets what the environment says. A variable that is empty counts as not set. Setting a key of an absent
// section brings the section into being. Messages never repeat a value that may be a secret.
func (r *report) override(cfg *Config, keys []key, environ []string) {
	set := map[string]string{}
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, envPrefix) && value != "" {
			set[name] = value
		}
	}
	var names []string
	for _, k := range keys {
		if k.Env == "" {
			continue
		}
		names = append(names, k.Env)
		if value, ok := set[k.Env]; ok {
			r.overrideKey(k, keys, fieldOf(cfg, k), value)
			delete(set, k.Env)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		if nearest := nearestName(names, name); nearest != "" {
			r.warn(join("", name), "unknown environment variable; did you mean %s?", nearest)
		} else {
			r.warn(join("", name), "unknown environment variable; it has no effect")
		}
	}
}

// fieldOf returns the field of a key, making the sections on the way there.
func fieldOf(cfg *Config, k key) reflect.Value {
	value := reflect.ValueOf(cfg).Elem()
	for _, index := range k.fields {
		value = value.Field(index)
		if value.Kind() == reflect.Pointer {
			if value.IsNil() {
				value.Set(reflect.New(value.Type().Elem()))
			}
			value = value.Elem()
		}
	}
	return value
}

func (r *report) overrideKey(k key, keys []key, into reflect.Value, value string) {
	if span, ok := reflect.TypeAssert[*Duration](into.Addr()); ok {
		r.setDuration(keys, k.Path, span, value, " (from "+k.Env+")")
		return
	}
	switch into.Kind() {
	case reflect.Slice:
		r.overrideList(k, into, value)
	case reflect.Int:
		number, err := strconv.Atoi(value)
		if err != nil {
			r.fail(k.Path, "want a whole number, got %s (from %s)", quote(value), k.Env)
			return
		}
		setNumber(r, keys, k.Path, into, int64(number))
	case reflect.Bool:
		yes, err := strconv.ParseBool(value)
		if err != nil {
			r.fail(k.Path, "want true or false, got %s (from %s)", quote(value), k.Env)
			return
		}
		into.SetBool(yes)
	case reflect.Map:
		pairs, err := parsePairs(value)
		if err != nil {
			r.fail(k.Path, "%v (from %s)", err, k.Env)
			return
		}
		into.Set(reflect.ValueOf(pairs))
	default:
		into.SetString(strings.ToValidUTF8(value, "\uFFFD"))
	}
}

// overrideList reads elements with commas between; one that holds a comma can only be written in the file.
func (r *report) overrideList(k key, into reflect.Value, value string) {
	elements := strings.Split(strings.ToValidUTF8(value, "\uFFFD"), ",")
	values := reflect.MakeSlice(into.Type(), len(elements), len(elements))
	for i, element := range elements {
		element = strings.TrimSpace(element)
		if span, ok := reflect.TypeAssert[*Duration](values.Index(i).Addr()); !ok {
			values.Index(i).SetString(element)
		} else if !r.setDuration(nil, fmt.Sprintf("%s[%d]", k.Path, i), span, element, " (from "+k.Env+")") {
			return
		}
	}
	into.Set(values)
}

// parsePairs reads "k=v,k2=v2". A value may hold further equals signs but no comma.
func parsePairs(text string) (map[string]string, error) {
	pairs := map[string]string{}
	for pair := range strings.SplitSeq(strings.ToValidUTF8(text, "\uFFFD"), ",") {
		name, value, ok := strings.Cut(pair, "=")
		name = strings.TrimSpace(name)
		if !ok || name == "" {
			return nil, errors.New("want name=text pairs with commas between, such as a=1,b=2; got " + quote(pair))
		}
		pairs[name] = strings.TrimSpace(value)
	}
	return pairs, nil
}
