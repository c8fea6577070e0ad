package config

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Key describes one configuration key.
type Key struct {
	Path    string // such as "agent.logLevel"
	Type    string // "text", "whole number", "true or false", "duration", "list of text", "list of durations", "map of text" or "section"
	Default string // what applies when it is not set, as text; empty when nothing
	Doc     string // one phrase about the key
	Env     string // environment variable that overrides it; empty for a section
	Secret  bool   // its value must never be shown
}

// Meaning is Doc for a person who reads about the key alone: it says so where the value is a secret.
func (k Key) Meaning() string {
	if k.Secret {
		return k.Doc + ". A secret: it is never shown"
	}
	return k.Doc
}

// Keys lists every key, sections before what they hold, in the order of the types. It is made anew on each call.
func Keys() []Key {
	all := allKeys()
	keys := make([]Key, len(all))
	for i, k := range all {
		keys[i] = k.Key
	}
	return keys
}

// key is a Key with the way to its field: the index of each field from Config down.
type key struct {
	Key
	fields []int
}

func allKeys() []key {
	cfg := &Config{}
	cfg.SetDefaults()
	return appendKeys(nil, key{}, reflect.ValueOf(cfg).Elem())
}

func appendKeys(keys []key, parent key, section reflect.Value) []key {
	for _, f := range fieldsOf(section.Type()) {
		k := key{fields: append(slices.Clone(parent.fields), f.index)}
		k.Path, k.Doc, k.Secret = join(parent.Path, f.name), f.doc, f.secret
		value := section.Field(f.index)
		if value.Kind() == reflect.Pointer && value.Type().Elem().Kind() == reflect.Struct {
			value = reflect.Zero(value.Type().Elem()) // absent, so without defaults
		}
		if value.Kind() == reflect.Struct {
			k.Type = "section"
			keys = appendKeys(append(keys, k), k, value)
			continue
		}
		value = reflect.Indirect(value)
		k.Type, k.Default, k.Env = typeName(value.Type()), valueText(value), envName(k.Path)
		if value.IsZero() && f.def != "" {
			k.Default = f.def
		}
		keys = append(keys, k)
	}
	return keys
}

func typeName(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[Duration]():
		return "duration"
	case reflect.TypeFor[[]Duration]():
		return "list of durations"
	case reflect.TypeFor[[]string]():
		return "list of text"
	}
	switch t.Kind() {
	case reflect.Int:
		return "whole number"
	case reflect.Bool:
		return "true or false"
	case reflect.Map:
		return "map of text"
	default:
		return "text"
	}
}

func valueText(value reflect.Value) string {
	switch v := value.Interface().(type) {
	case int:
		return strconv.Itoa(v)
	case bool:
		return strconv.FormatBool(v)
	case map[string]string:
		var pairs []string
		for _, name := range slices.Sorted(maps.Keys(v)) {
			pairs = append(pairs, name+"="+v[name])
		}
		return strings.Join(pairs, ",")
	case Duration:
		if v == 0 {
			return ""
		}
		return v.String()
	case []string:
		return strings.Join(v, ",")
	case []Duration:
		return "" // no such key gets a default by SetDefaults
	default:
		return value.String()
	}
}

// field is one field of a section that has a key.
type field struct {
	name, doc, def string
	secret         bool
	index          int
}

func fieldsOf(section reflect.Type) []field {
	var fields []field
	for f := range section.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" {
			continue
		}
		fields = append(fields, field{name: name, doc: f.Tag.Get("doc"), def: f.Tag.Get("default"),
			secret: f.Tag.Get("secret") == "true", index: f.Index[0]})
	}
	return fields
}

// join returns the path of name in the section at path. A name that would garble a message, as only a file's own keys
// can, is quoted and cut short.
func join(path, name string) string {
	plain := name != "" && len(name) <= maxShown && !strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' })
	if !plain {
		name = quote(name)
	}
	if path == "" {
		return name
	}
	return path + "." + name
}

// maxShown is how many characters of somebody's text a message repeats.
const maxShown = 80

// quote makes text safe to show: quoted, on one line, and cut short.
func quote(text string) string {
	for i := range text {
		if i > maxShown {
			return fmt.Sprintf("%q…", text[:i])
		}
	}
	return strconv.Quote(text)
}
