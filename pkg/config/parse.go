package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v2"
)

const (
	// maxDepth bounds how deep sections may nest; the deepest known key lies four deep.
	maxDepth = 32
	// maxText bounds what a file may expand to: YAML aliases let a small file ask for very much.
	maxText = 4 * maxFileSize
	// maxAliases bounds the work YAML aliases ask for: the parser looks at what an alias stands for each time anew.
	maxAliases = 20
	// maxItems is how many elements of a list are kept; no key needs more.
	maxItems = 100
)

// kind is what a node of a file is.
type kind int

const (
	nullNode kind = iota
	textNode
	numberNode
	boolNode
	listNode
	objectNode
)

// node is a value of a file, JSON or YAML, before it is known what it should be.
type node struct {
	kind    kind
	text    string   // of a scalar, as written in the file
	plain   bool     // a scalar that YAML lets stand for text, too, for lack of quotes
	members []member // of an object: in JSON in the file's order, in YAML sorted by key
	items   []node   // of a list: at most maxItems and one more, without what objects and lists among them hold
}

type member struct {
	key   string
	value node
}

// parse reads a file: JSON if it begins like that, else YAML. YAML can begin with a brace as well, so a file named as
// YAML gets a second chance. An empty file is a null node.
func parse(name string, data []byte) (node, error) {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")) // the byte order mark that some editors leave
	begin := bytes.TrimLeft(data, " \t\r\n")
	if len(begin) == 0 {
		return node{}, nil
	}
	read := parseYAML
	namedYAML := strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".yml")
	if begin[0] == '{' || begin[0] == '[' {
		if !namedYAML || json.Valid(data) {
			read = parseJSON
		}
	}
	root, err := read(data)
	if err != nil {
		return node{}, err
	}
	size := 0
	return root, root.check(0, &size)
}

// check refuses what is nested too deep or expands too far.
func (n node) check(depth int, size *int) error {
	if *size += len(n.text); *size > maxText {
		return fmt.Errorf("expands to more than %d MiB of text", maxText>>20)
	}
	for _, item := range n.items {
		*size += len(item.text)
	}
	for _, m := range n.members {
		if depth == maxDepth {
			return errTooDeep()
		}
		*size += len(m.key)
		if err := m.value.check(depth+1, size); err != nil {
			return err
		}
	}
	return nil
}

func errTooDeep() error { return fmt.Errorf("nested more than %d levels deep", maxDepth) }

func parseJSON(data []byte) (node, error) {
	var whole json.RawMessage // checks the syntax of everything, also of what follows the object
	if err := json.Unmarshal(data, &whole); err != nil {
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
			line, column := position(data, syntax.Offset)
			return node{}, fmt.Errorf("line %d, column %d: %w", line, column, err)
		}
		return node{}, err
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	return jsonNode(decoder, 0)
}

// position turns the offset behind a byte into the line and column of that byte, counted from 1.
func position(data []byte, offset int64) (line, column int) {
	before := data[:max(0, min(int(offset)-1, len(data)))]
	return 1 + bytes.Count(before, []byte("\n")), len(before) - bytes.LastIndexByte(before, '\n')
}

func jsonNode(decoder *json.Decoder, depth int) (node, error) {
	token, err := decoder.Token()
	if err != nil {
		return node{}, err
	}
	switch v := token.(type) {
	case string:
		return node{kind: textNode, text: v}, nil
	case json.Number:
		return node{kind: numberNode, text: v.String()}, nil
	case bool:
		return node{kind: boolNode, text: fmt.Sprint(v)}, nil
	case json.Delim:
		return jsonContainer(decoder, v, depth)
	default:
		return node{}, nil
	}
}

// jsonContainer reads the rest of an object or a list. No key takes a list of more than plain values.
func jsonContainer(decoder *json.Decoder, begin json.Delim, depth int) (node, error) {
	n := node{kind: listNode}
	if begin == '{' {
		n.kind = objectNode
	}
	if depth > maxDepth {
		return node{}, errTooDeep()
	}
	for decoder.More() {
		if n.kind == listNode {
			var raw json.RawMessage
			if err := decoder.Decode(&raw); err != nil {
				return node{}, err
			}
			if len(n.items) <= maxItems {
				n.items = append(n.items, jsonItem(raw))
			}
			continue
		}
		token, err := decoder.Token()
		if err != nil {
			return node{}, err
		}
		name, _ := token.(string)
		value, err := jsonNode(decoder, depth+1)
		if err != nil {
			return node{}, err
		}
		n.members = append(n.members, member{key: name, value: value})
	}
	_, err := decoder.Token() // the closing bracket
	return n, err
}

// jsonItem makes an element of a list a node.
func jsonItem(raw json.RawMessage) node {
	n := node{text: string(raw)}
	switch raw[0] {
	case '{':
		return node{kind: objectNode}
	case '[':
		return node{kind: listNode}
	case 'n':
		return node{}
	case 't', 'f':
		n.kind = boolNode
	case '"':
		n.kind = textNode
		_ = json.Unmarshal(raw, &n.text) // the syntax was checked
	default:
		n.kind = numberNode
	}
	return n
}

// parseYAML reads YAML with the parser beneath sigs.k8s.io/yaml. That package itself turns numbers into floats before
// it turns them into text, so that version 1.30 becomes "1.3", and it writes every alias out, so that a file of 1 MiB
// can ask for gigabytes.
func parseYAML(data []byte) (node, error) {
	if countAliases(data) > maxAliases {
		return node{}, fmt.Errorf("uses more than %d YAML aliases", maxAliases)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	decoder.SetStrict(true) // a key given twice is an error
	var root, second node
	if err := decoder.Decode(&root); err != nil && !errors.Is(err, io.EOF) {
		return node{}, yamlError(err)
	}
	switch err := decoder.Decode(&second); {
	case errors.Is(err, io.EOF):
		return root, nil
	case err != nil:
		return node{}, yamlError(err)
	default:
		return node{}, errors.New("holds more than one YAML document")
	}
}

// countAliases counts what may be YAML aliases: asterisks with a name behind. Some may turn out to be text or comment,
// but no real config has many of either.
func countAliases(data []byte) int {
	count := 0
	for i, c := range data {
		if i > 0 && data[i-1] == '*' && (c == '-' || c == '_' || c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z') {
			count++
		}
	}
	return count
}

// UnmarshalYAML keeps scalars as they are written. It is called for everything but null.
func (n *node) UnmarshalYAML(unmarshal func(any) error) error {
	var text string
	if unmarshal(&text) == nil {
		var value any
		if err := unmarshal(&value); err != nil {
			return err
		}
		*n = yamlScalar(text, value)
		return nil
	}
	var list []item
	if unmarshal(&list) == nil {
		n.kind = listNode
		for _, i := range list[:min(len(list), maxItems+1)] {
			n.items = append(n.items, node(i))
		}
		return nil
	}
	var object map[string]node
	if err := unmarshal(&object); err != nil {
		return err
	}
	n.kind = objectNode
	for name, value := range object {
		n.members = append(n.members, member{key: strings.ToValidUTF8(name, "\uFFFD"), value: value})
	}
	slices.SortFunc(n.members, func(a, b member) int { return strings.Compare(a.key, b.key) })
	return nil
}

func yamlScalar(text string, value any) node {
	n := node{kind: textNode, text: strings.ToValidUTF8(text, "\uFFFD"), plain: true} // !!binary can hold anything
	switch value.(type) {
	case nil:
		return node{}
	case bool:
		n.kind = boolNode
	case int, int64, uint64, float64:
		n.kind = numberNode
	}
	return n
}

// item is an element of a YAML list: a node without what objects and lists hold.
type item node

// UnmarshalYAML is called for everything but null.
func (i *item) UnmarshalYAML(unmarshal func(any) error) error {
	var text string
	var list []ignored
	switch {
	case unmarshal(&text) == nil:
		var value any
		if err := unmarshal(&value); err != nil {
			return err
		}
		*i = item(yamlScalar(text, value))
	case unmarshal(&list) == nil:
		i.kind = listNode
	default:
		i.kind = objectNode
	}
	return nil
}

// ignored takes any YAML value and keeps nothing of it.
type ignored struct{}

func (*ignored) UnmarshalYAML(func(any) error) error { return nil }

// yamlError takes what the file says out of the parser's message, because it may be a secret: a password that begins
// with an asterisk is an unknown alias to YAML.
func yamlError(err error) error {
	var several *yaml.TypeError
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	if errors.As(err, &several) && len(several.Errors) > 0 {
		text = several.Errors[0]
	}
	if after, ok := strings.CutPrefix(text, "line "); ok {
		text = "near line " + after // the parser counts from 0 or from 1, as it happens
	}
	text = blank(text, "`", "`")
	text = blank(text, "anchor '", "'")
	return errors.New(text)
}

// blank replaces what stands between begin and the last end.
func blank(text, begin, end string) string {
	from := strings.Index(text, begin)
	if from < 0 {
		return text
	}
	from += len(begin)
	if to := strings.LastIndex(text, end); to >= from {
		return text[:from] + "…" + text[to:]
	}
	return text
}
