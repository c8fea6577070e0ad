package config

import (
	"fmt"
	"slices"
	"strings"
)

// maxReported bounds how many errors and how many warnings are kept; no person reads more, and a hostile file could
// otherwise ask for hundreds of thousands.
const maxReported = 100

// KeyError is one mistake: the value of one key.
type KeyError struct {
	// Path of the key, such as "node.maxPods"; empty when the mistake belongs to no single key.
	Path string
	// Message says what was wanted and what was found. It never holds the value of a secret.
	Message string
}

// Error returns "path: message".
func (e *KeyError) Error() string { return atPath(e.Path, e.Message) }

// KeyErrors is every mistake found at once, in the order of the file's sections. Reach it with errors.As; errors.As
// with a *KeyError finds the first one. At most a hundred are kept.
type KeyErrors []*KeyError

// Error lists the mistakes, one a line when there are several.
func (e KeyErrors) Error() string {
	if len(e) == 1 {
		return e[0].Error()
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%d mistakes", len(e))
	for _, one := range e {
		text.WriteString("\n  " + one.Error())
	}
	return text.String()
}

// Unwrap gives errors.Is and errors.As each mistake.
func (e KeyErrors) Unwrap() []error {
	all := make([]error, len(e))
	for i, one := range e {
		all[i] = one
	}
	return all
}

// Warning is something that works but is most likely not meant.
type Warning struct {
	// Path of the key, or the name of the environment variable; empty when the warning is about the whole file.
	Path string
	// Message never holds the value of a secret.
	Message string
}

// String returns "path: message".
func (w Warning) String() string { return atPath(w.Path, w.Message) }

func atPath(path, message string) string {
	if path == "" {
		return message
	}
	return path + ": " + message
}

// report collects what is to be said about one file, bounded.
type report struct {
	errors     KeyErrors
	warnings   []Warning
	unreadable []string // paths of sections that are no sections; nothing is known about what they hold
}

// fail records a mistake. A path fails once: what follows from its first mistake is not news.
func (r *report) fail(path, format string, args ...any) {
	switch {
	case r.failed(path) || len(r.errors) > maxReported:
	case len(r.errors) == maxReported:
		r.errors = append(r.errors, &KeyError{Message: fmt.Sprintf("there are more than %d mistakes", maxReported)})
	default:
		r.errors = append(r.errors, &KeyError{Path: path, Message: fmt.Sprintf(format, args...)})
	}
}

func (r *report) warn(path, format string, args ...any) {
	switch {
	case len(r.warnings) > maxReported:
	case len(r.warnings) == maxReported:
		r.warnings = append(r.warnings, Warning{Message: fmt.Sprintf("there are more than %d warnings", maxReported)})
	default:
		r.warnings = append(r.warnings, Warning{Path: path, Message: fmt.Sprintf(format, args...)})
	}
}

// failed says whether path has a mistake already or lies in a section that could not be read.
func (r *report) failed(path string) bool {
	return slices.ContainsFunc(r.errors, func(e *KeyError) bool { return path != "" && path == e.Path }) ||
		slices.ContainsFunc(r.unreadable, func(section string) bool { return strings.HasPrefix(path, section+".") })
}

// failedWithin says whether path or anything below it has a mistake already.
func (r *report) failedWithin(path string) bool {
	return slices.ContainsFunc(r.errors, func(e *KeyError) bool {
		return e.Path == path || strings.HasPrefix(e.Path, path+".")
	})
}

// err returns the mistakes as an error, nil when there are none.
func (r *report) err() error {
	if len(r.errors) == 0 {
		return nil
	}
	return r.errors
}
