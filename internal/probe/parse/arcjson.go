package parse

import (
	"encoding/json"
	"errors"
	"io"
	"strings"
)

// maxBrokenObjects bounds the work on an output with many lines that begin with a brace and are no JSON.
const maxBrokenObjects = 32

// ArcJSON reads the object that `azcmagent show -j` prints: the first that begins a line, is whole, and has a status together with
// something that only the agent's own answer has. Log lines before it and text after it do not matter, nor do letter case of keys and
// types of values. An object that is cut off ends the search, because what follows lies inside it.
func ArcJSON(out []byte) (Arc, bool) {
	text := plain(out)
	for broken := 0; text != "" && broken < maxBrokenObjects; {
		if !strings.HasPrefix(strings.TrimLeft(text, " \t"), "{") {
			_, text, _ = strings.Cut(text, "\n")
			continue
		}
		var doc arcDoc
		dec := json.NewDecoder(strings.NewReader(text))
		switch err := dec.Decode(&doc); {
		case errors.Is(err, io.ErrUnexpectedEOF):
			return Arc{}, false
		case err != nil:
			broken++
		default:
			if arc, ok := doc.arc(); ok {
				return arc, true
			}
			text = text[dec.InputOffset():]
		}
		_, text, _ = strings.Cut(text, "\n")
	}
	return Arc{}, false
}

// arcDoc is the JSON form. The keys after AgentErrorDetails occur in scripts only.
type arcDoc struct {
	ResourceName      jsonText        `json:"resourceName"`
	ResourceGroup     jsonText        `json:"resourceGroup"`
	ResourceID        jsonText        `json:"resourceId"`
	VMID              jsonText        `json:"vmId"`
	Location          jsonText        `json:"location"`
	AgentVersion      jsonText        `json:"agentVersion"`
	Status            jsonText        `json:"status"`
	LastHeartbeat     jsonText        `json:"lastHeartbeat"`
	AgentErrorCode    jsonText        `json:"agentErrorCode"`
	AgentErrorDetails jsonText        `json:"agentErrorDetails"`
	AgentStatus       jsonText        `json:"agentStatus"`
	ResourceGroupName jsonText        `json:"resourceGroupName"`
	Services          json.RawMessage `json:"services"`
}

// arc returns the object's meaning. "status" alone is not enough: services, log lines and Azure's error answers have one too.
func (d arcDoc) arc() (Arc, bool) {
	own := d.ResourceName.set || d.ResourceID.set || d.VMID.set || d.AgentVersion.set || d.LastHeartbeat.set || d.AgentErrorCode.set ||
		d.ResourceGroup.set || d.ResourceGroupName.set || d.AgentStatus.set
	if !own {
		return Arc{}, false
	}
	a := Arc{
		Status:        either(d.Status, d.AgentStatus),
		MachineName:   d.ResourceName.text,
		ResourceID:    d.ResourceID.text,
		Location:      d.Location.text,
		ResourceGroup: either(d.ResourceGroup, d.ResourceGroupName),
		AgentVersion:  d.AgentVersion.text,
		ErrorCode:     d.AgentErrorCode.text,
		ErrorDetails:  d.AgentErrorDetails.text,
	}
	var services []struct {
		DisplayName jsonText `json:"displayName"`
		ServiceName jsonText `json:"serviceName"`
		Status      jsonText `json:"status"`
	}
	// Best effort: entries of another type are left out, as is a value that is no list. The rest of the answer stands without them.
	_ = json.Unmarshal(d.Services, &services)
	for _, s := range services {
		a.addService(Service{Name: s.ServiceName.text, DisplayName: s.DisplayName.text, Status: s.Status.text})
	}
	return a.finish(d.LastHeartbeat.text)
}

// either returns the first text that is not empty.
func either(a, b jsonText) string {
	if a.text != "" {
		return a.text
	}
	return b.text
}

// jsonText is a value whose type is not certain, as text: strings as they are, numbers and booleans as written, all else empty.
type jsonText struct {
	set  bool // the key was there
	text string
}

// UnmarshalJSON implements json.Unmarshaler; it never fails, so that one odd value does not spoil the object.
func (t *jsonText) UnmarshalJSON(raw []byte) error {
	t.set, t.text = true, ""
	switch raw[0] {
	case '"':
		return json.Unmarshal(raw, &t.text)
	case '{', '[', 'n':
		return nil
	default:
		t.text = string(raw)
		return nil
	}
}
