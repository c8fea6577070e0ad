package localapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// pauseRequest is the body of a request to pause.
type pauseRequest struct {
	By     string     `json:"by"`
	Reason string     `json:"reason"`
	Until  *time.Time `json:"until,omitempty"`
}

// resumeRequest is the body of a request to resume.
type resumeRequest struct {
	By string `json:"by"`
}

func (p pauseRequest) check(now time.Time) error {
	if err := checkWord("by", p.By, maxWord); err != nil {
		return err
	}
	if err := checkWord("reason", p.Reason, MaxReason); err != nil {
		return err
	}
	if p.Until != nil && !p.Until.After(now) {
		return bad("the pause would be over already (until "+p.Until.Format(time.RFC3339)+")", "give a time in the future, or none; if this one is, check the host's clock")
	}
	return nil
}

// checkWord holds that a text is there and that the journal can keep it whole.
func checkWord(name, value string, limit int) error {
	switch {
	case strings.TrimSpace(value) == "":
		return bad(strconv.Quote(name)+" is missing", "people who read the history want to know")
	case len(value) > limit:
		return bad(fmt.Sprintf("%q has %d bytes", name, len(value)), fmt.Sprintf("use %d at most", limit))
	}
	return nil
}

func bad(message, hint string) error {
	return &Error{http.StatusBadRequest, message, hint}
}

// readBody reads one JSON object and nothing else. bounded limits its size.
func readBody(r *http.Request, into any) error {
	const hint = `send one JSON object, such as {"by": "jo", "reason": "new switch"}`
	data, err := io.ReadAll(r.Body)
	if tooLong, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return &Error{http.StatusRequestEntityTooLarge, fmt.Sprintf("the body has more than %d bytes", tooLong.Limit), hint}
	}
	if err != nil {
		return bad("the body did not arrive: "+err.Error(), hint)
	}
	decoder := json.NewDecoder(strings.NewReader(string(data)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return bad("the body can't be understood: "+clip(err.Error(), maxWord), hint)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return bad("something follows the JSON object in the body", hint)
	}
	return nil
}

// checkQuery takes only the names that this path knows, each once.
func checkQuery(r *http.Request, known []string) error {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return bad("the query can't be understood: "+clip(err.Error(), maxWord), "write it as NAME=VALUE&NAME=VALUE, with + as %2B")
	}
	for name, values := range query {
		if !slices.Contains(known, name) {
			hint := "this path takes no query"
			if len(known) > 0 {
				hint = "it can have " + strings.Join(known, ", ")
			}
			return bad(fmt.Sprintf("the query has an unknown name %q", clip(name, maxWord)), hint)
		}
		if len(values) > 1 {
			return bad(fmt.Sprintf("the query has %q more than once", name), "leave one")
		}
	}
	return nil
}

// generation is the query's after; 0 when there is none.
func generation(r *http.Request) (uint64, error) {
	text := r.URL.Query().Get("after")
	if text == "" {
		return 0, nil
	}
	after, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, bad(fmt.Sprintf("after=%s is no generation", clip(text, maxWord)), "use the generation of the view that you have")
	}
	return after, nil
}

// span is a part of the history. Zero fields are no bound.
type span struct {
	from, to time.Time
	limit    int
}

func spanOf(r *http.Request) (span, error) {
	query := r.URL.Query()
	var s span
	var err error
	if s.from, err = timeOf(query, "from"); err != nil {
		return span{}, err
	}
	if s.to, err = timeOf(query, "to"); err != nil {
		return span{}, err
	}
	if !s.from.IsZero() && !s.to.IsZero() && s.to.Before(s.from) {
		return span{}, bad("to is before from", "exchange them")
	}
	if text := query.Get("limit"); text != "" {
		s.limit, err = strconv.Atoi(text)
		if err != nil || s.limit < 0 {
			return span{}, bad(fmt.Sprintf("limit=%s is no count", clip(text, maxWord)), "use a whole number; 0 is no limit")
		}
	}
	return s, nil
}

func timeOf(query url.Values, name string) (time.Time, error) {
	text := query.Get(name)
	if text == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, bad(fmt.Sprintf("%s=%s is no time", name, clip(text, maxWord)), "write it like 2026-11-30T18:00:00Z, with + as %2B")
	}
	return t, nil
}

// wantsText reports whether the answer should be for people: as the query says, else the first type of the Accept header that there is.
func wantsText(r *http.Request) (bool, error) {
	switch output := r.URL.Query().Get("output"); output {
	case "text":
		return true, nil
	case "json":
		return false, nil
	case "":
	default:
		return false, bad(fmt.Sprintf("output=%s is not known", clip(output, maxWord)), "use text or json")
	}
	for kind := range strings.SplitSeq(r.Header.Get("Accept"), ",") {
		kind, _, _ = mime.ParseMediaType(kind) // what can't be understood is nothing that there is
		switch kind {
		case "text/plain", "text/*":
			return true, nil
		case typeJSON, "application/*", "*/*":
			return false, nil
		}
	}
	return false, nil
}
