package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

//go:embed scenarios.json
var scenariosJSON []byte

// document is scenarios.json.
type document struct {
	Outputs   map[string]text     `json:"outputs"`
	Scenarios map[string]scenario `json:"scenarios"`
}

// text is written as a list of its lines, so that it can be read.
type text string

// UnmarshalJSON implements json.Unmarshaler.
func (t *text) UnmarshalJSON(raw []byte) error {
	var lines []string
	if err := json.Unmarshal(raw, &lines); err != nil {
		return err
	}
	*t = text(strings.Join(lines, "\n"))
	return nil
}

// scenario is what the stand-in answers to each command that it knows.
type scenario struct {
	About   string `json:"about"`
	JSON    reply  `json:"json"`    // to show -j
	Table   reply  `json:"table"`   // to show
	Version reply  `json:"version"` // to version
}

// reply is one answer. The zero value says nothing and ends well.
type reply struct {
	IgnoreTERM bool   `json:"ignoreTERM"` // SIGTERM, SIGINT and SIGHUP
	Child      bool   `json:"child"`      // leave a child behind that holds the pipe open and ignores those signals too
	DelayMS    int    `json:"delayMS"`    // before the first word
	Stdout     string `json:"stdout"`     // key in outputs
	Cut        int    `json:"cut"`        // print only so many bytes of it; 0: all
	Stderr     string `json:"stderr"`     // key in outputs
	Flood      int    `json:"flood"`      // print so many bytes more
	Hang       bool   `json:"hang"`       // do not end
	Exit       int    `json:"exit"`       // status
}

func loadDocument() (document, error) {
	var doc document
	if err := decode(scenariosJSON, &doc); err != nil {
		return doc, fmt.Errorf("scenarios.json: %w", err)
	}
	for name, s := range doc.Scenarios {
		if err := s.check(doc.Outputs); err != nil {
			return doc, fmt.Errorf("scenarios.json: %q: %w", name, err)
		}
	}
	return doc, nil
}

func decode(raw []byte, v any) error {
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.DisallowUnknownFields() // a misspelled field would be a scenario that tests nothing
	return d.Decode(v)
}

// check reports outputs that a scenario names and that there are not.
func (s scenario) check(outputs map[string]text) error {
	for _, r := range []reply{s.JSON, s.Table, s.Version} {
		for _, key := range []string{r.Stdout, r.Stderr} {
			if _, ok := outputs[key]; !ok && key != "" {
				return fmt.Errorf("there is no output %q", key)
			}
		}
	}
	return nil
}

// find returns a scenario by its name, or the one that is written out.
func (d document) find(word string) (scenario, error) {
	if strings.HasPrefix(word, "{") {
		var s scenario
		if err := decode([]byte(word), &s); err != nil {
			return s, fmt.Errorf("the scenario: %w", err)
		}
		return s, s.check(d.Outputs)
	}
	s, ok := d.Scenarios[word]
	if !ok {
		return s, fmt.Errorf("there is no scenario %q, only %q", word, slices.Sorted(maps.Keys(d.Scenarios)))
	}
	return s, nil
}

// chosen returns the scenario that was asked for.
func chosen() string {
	if self, err := os.Executable(); err == nil {
		if b, err := os.ReadFile(self + ".scenario"); err == nil {
			return strings.TrimSpace(string(b))
		}
	}
	if word := os.Getenv("AZCMAGENT_SCENARIO"); word != "" {
		return word
	}
	return "connected"
}
