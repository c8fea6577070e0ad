package config

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// decoder puts what a file says into a Config and reports what does not fit.
type decoder struct {
	*report
	keys []key
}

// section fills a struct from an object. Keys match in any letter case.
func (d *decoder) section(path string, into reflect.Value, n node) {
	if n.kind != objectNode {
		d.fail(path, "want an object with keys, got %s", n.shape()) // not the value: it may be a misplaced secret
		d.unreadable = append(d.unreadable, path)
		return
	}
	fields := fieldsOf(into.Type())
	given := make([][]member, len(fields))
	for _, m := range n.members {
		i := slices.IndexFunc(fields, func(f field) bool { return strings.EqualFold(f.name, m.key) })
		if i < 0 {
			d.unknown(path, m.key)
			continue
		}
		given[i] = append(given[i], m)
	}
	for i, f := range fields {
		at := join(path, f.name)
		if len(given[i]) > 1 {
			d.warn(at, "is given %d times; where they disagree, the one written %s counts, else the last", len(given[i]), f.name)
			slices.SortStableFunc(given[i], func(a, b member) int { return exact(a, f.name) - exact(b, f.name) })
		}
		for _, m := range given[i] {
			d.value(at, f, into.Field(f.index), m.value)
		}
	}
}

// exact is 1 for a member whose key is spelt as name, else 0.
func exact(m member, name string) int {
	if m.key == name {
		return 1
	}
	return 0
}

func (d *decoder) unknown(path, name string) {
	if len(d.warnings) > maxReported {
		return // looking for the nearest key takes time that a hostile file could make long
	}
	if nearest := nearestKey(d.keys, path, name); nearest != "" {
		d.warn(join(path, name), "unknown key; did you mean %s?", nearest)
		return
	}
	d.warn(join(path, name), "unknown key; it has no effect")
}

// value fills one field. Null is as good as absent.
func (d *decoder) value(path string, f field, into reflect.Value, n node) {
	if n.kind == nullNode {
		if path == "azure.managedIdentity" {
			d.warn(path, "null counts as absent; write {} to select this way of authentication")
		}
		return
	}
	if into.Kind() == reflect.Pointer {
		if into.IsNil() {
			into.Set(reflect.New(into.Type().Elem()))
		}
		into = into.Elem()
	}
	if span, ok := reflect.TypeAssert[*Duration](into.Addr()); ok {
		d.duration(path, span, n)
		return
	}
	switch into.Kind() {
	case reflect.Struct:
		d.section(path, into, n)
	case reflect.Slice:
		d.list(path, f, into, n)
	case reflect.Map:
		d.textMap(path, into, n)
	case reflect.Int:
		d.number(path, into, n)
	case reflect.Bool:
		if n.kind != boolNode {
			d.fail(path, "want true or false, got %s", n.shown())
			return
		}
		into.SetBool(slices.Contains([]string{"true", "yes", "on", "y"}, strings.ToLower(n.text)))
	default:
		if text, ok := d.text(path, f.secret, n); ok {
			into.SetString(text)
		}
	}
}

func (d *decoder) number(path string, into reflect.Value, n node) {
	value, err := strconv.ParseInt(n.text, 0, strconv.IntSize)
	if n.kind != numberNode || err != nil {
		d.fail(path, "want a whole number, got %s", n.shown())
		return
	}
	setNumber(d.report, d.keys, path, into, value)
}

// setNumber sets a whole number. Zero can't be told from nothing once it is in a Config, which is worth a warning.
func setNumber(r *report, keys []key, path string, into reflect.Value, value int64) {
	into.SetInt(value)
	if value == 0 {
		r.warnUnset(keys, path, "0")
	}
}

// warnUnset warns that what is written at path is as good as nothing, if there is a default that then applies.
func (r *report) warnUnset(keys []key, path, written string) {
	i := slices.IndexFunc(keys, func(k key) bool { return k.Path == path })
	if i >= 0 && keys[i].Default != "" && keys[i].Default != written {
		r.warn(path, "%s counts as not set; the default %s applies", written, keys[i].Default)
	}
}

// duration sets a time span, which a file gives as text.
func (d *decoder) duration(path string, into *Duration, n node) {
	if n.kind != textNode {
		d.fail(path, "%s, got %s", wantDuration(n.text), n.shown())
		return
	}
	d.setDuration(d.keys, path, into, n.text, "")
}

// setDuration sets a time span from text; from says where that is from, if it is not the file. Zero is treated as for numbers.
func (r *report) setDuration(keys []key, path string, into *Duration, text, from string) bool {
	if err := into.UnmarshalText([]byte(text)); err != nil {
		r.fail(path, "%v%s", err, from)
		return false
	}
	if *into == 0 {
		r.warnUnset(keys, path, "0")
	}
	return true
}

// list replaces a list. One element that does not fit leaves the field as it was.
func (d *decoder) list(path string, f field, into reflect.Value, n node) {
	switch {
	case n.kind != listNode:
		d.fail(path, "want a list in brackets, got %s", n.shape())
		return
	case len(n.items) > maxItems:
		d.fail(path, "want a list of at most %d, got more", maxItems)
		return
	case len(n.items) == 0:
		into.SetZero() // so that empty is one thing
		d.warnUnset(d.keys, path, "[]")
		return
	}
	values := reflect.MakeSlice(into.Type(), len(n.items), len(n.items))
	before := len(d.errors)
	for i, item := range n.items {
		at := fmt.Sprintf("%s[%d]", path, i)
		if item.kind == nullNode {
			d.fail(at, "want a value, got null")
			continue
		}
		d.value(at, f, values.Index(i), item)
	}
	if len(d.errors) == before {
		into.Set(values)
	}
}

// text returns a scalar as text. A JSON number or boolean is a mistake there; in YAML it is only text without quotes,
// and kept as written.
func (d *decoder) text(path string, secret bool, n node) (string, bool) {
	switch {
	case n.kind == textNode, n.plain:
		return n.text, true
	case secret:
		d.fail(path, "want text in quotes, got %s", n.shape())
	default:
		d.fail(path, "want text in quotes, got %s", n.shown())
	}
	return "", false
}

// textMap replaces a map of text. Its keys are the user's own, so letter case matters in them.
func (d *decoder) textMap(path string, into reflect.Value, n node) {
	if n.kind != objectNode {
		d.fail(path, "want an object of names with text, got %s", n.shape())
		return
	}
	values := make(map[string]string, len(n.members))
	for _, m := range n.members {
		at := join(path, m.key)
		if _, twice := values[m.key]; twice {
			d.warn(at, "is given more than once; the last one counts")
		}
		if m.value.kind == nullNode {
			values[m.key] = ""
		} else if text, ok := d.text(at, false, m.value); ok {
			values[m.key] = text
		}
	}
	into.Set(reflect.ValueOf(values))
}

// shape names what a node is without what it says.
func (n node) shape() string {
	return [...]string{"null", "text", "a number", "true or false", "a list", "an object"}[n.kind]
}

// shown names what a node is by what it says, if that is one value.
func (n node) shown() string {
	switch {
	case n.kind == textNode:
		return quote(n.text)
	case len(n.text) > maxShown:
		return n.text[:maxShown] + "…" // a number, so one byte is one character
	case n.text != "":
		return n.text
	default:
		return n.shape()
	}
}
