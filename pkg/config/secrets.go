package config

import (
	"encoding/json"
	"fmt"
	"reflect"
)

// redacted stands where a secret was.
const redacted = "[redacted]"

// Redacted returns a deep copy in which every secret that is set reads "[redacted]": the form to print, log or send.
// Nil for a nil Config. It shares nothing with c.
func (c *Config) Redacted() *Config {
	safe := c.clone()
	safe.eachSecret(func(_ string, secret reflect.Value) { secret.SetString(redacted) })
	return safe
}

// Secrets returns the secrets that are set, for those who must keep them out of logs and of other programs' output.
func (c *Config) Secrets() []string {
	var secrets []string
	c.eachSecret(func(_ string, secret reflect.Value) { secrets = append(secrets, secret.String()) })
	return secrets
}

// String returns the config as JSON without its secrets, so that printing a *Config gives nothing away. Encoding it
// with encoding/json does keep the secrets; encode [Config.Redacted] where that is not wanted.
func (c *Config) String() string {
	text, err := json.Marshal(c.Redacted())
	if err != nil {
		return "config: " + err.Error()
	}
	return string(text)
}

// Format prints the service principal without its secret, for every verb.
func (s ServicePrincipalConfig) Format(state fmt.State, verb rune) {
	type plain ServicePrincipalConfig // the same fields without this method, which would otherwise call itself
	if s.ClientSecret != "" {
		s.ClientSecret = redacted
	}
	_, _ = fmt.Fprintf(state, fmt.FormatString(state, verb), plain(s))
}

// Format prints the section without its token, for every verb.
func (b BootstrapTokenConfig) Format(state fmt.State, verb rune) {
	type plain BootstrapTokenConfig
	if b.Token != "" {
		b.Token = redacted
	}
	_, _ = fmt.Fprintf(state, fmt.FormatString(state, verb), plain(b))
}

// eachSecret calls visit with every secret that is set and the path of its key. What to visit follows from the tags.
func (c *Config) eachSecret(visit func(path string, secret reflect.Value)) {
	if c != nil {
		eachSecret("", reflect.ValueOf(c).Elem(), visit)
	}
}

func eachSecret(path string, section reflect.Value, visit func(path string, secret reflect.Value)) {
	for _, f := range fieldsOf(section.Type()) {
		value := reflect.Indirect(section.Field(f.index)) // a nil pointer gives an invalid value, of kind Invalid
		switch {
		case value.Kind() == reflect.Struct:
			eachSecret(join(path, f.name), value, visit)
		case f.secret && value.String() != "":
			visit(join(path, f.name), value)
		}
	}
}

// clone returns a deep copy, nil for nil.
func (c *Config) clone() *Config {
	if c == nil {
		return nil
	}
	copied := &Config{}
	copyInto(reflect.ValueOf(copied).Elem(), reflect.ValueOf(c).Elem())
	return copied
}

// copyInto deep-copies the kinds of values a Config is made of.
func copyInto(to, from reflect.Value) {
	switch {
	case from.Kind() == reflect.Struct:
		for i := range from.NumField() {
			copyInto(to.Field(i), from.Field(i))
		}
	case from.Kind() == reflect.Pointer && !from.IsNil():
		to.Set(reflect.New(from.Type().Elem()))
		copyInto(to.Elem(), from.Elem())
	case from.Kind() == reflect.Slice && !from.IsNil():
		to.Set(reflect.AppendSlice(reflect.MakeSlice(from.Type(), 0, from.Len()), from))
	case from.Kind() == reflect.Map && !from.IsNil():
		to.Set(reflect.MakeMapWithSize(from.Type(), from.Len()))
		for entry := from.MapRange(); entry.Next(); {
			to.SetMapIndex(entry.Key(), entry.Value())
		}
	default:
		to.Set(from)
	}
}
