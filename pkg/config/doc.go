// Package config is the configuration of the node agent: its types, how a file and the environment become a checked
// Config, and what the agent assumes where nothing is said.
//
// It aims at three things. A config that works on a node today keeps working: keys match in any letter case, absent
// sections are fine, and only what could not have worked is refused. A person who made mistakes learns all of them at
// once, each with the path of its key. Secrets stay inside: neither printing a Config nor any error or warning shows
// one.
//
// The struct tags of the types are the only list of keys there is: reading, environment overrides, suggestions for
// misspelt keys, redaction and [Keys] all follow from them.
//
// The package logs nothing and imports nothing else of this module. Nothing in it changes a Config by itself after
// loading, so a Config may be read from many goroutines as long as no one calls SetDefaults or writes a field.
package config
