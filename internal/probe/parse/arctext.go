package parse

import "strings"

const (
	keyStatus   = "Agent Status"
	keyDetails  = "Agent Error Details"
	keyServices = "Dependent Service Status"
)

// ArcText reads the table that `azcmagent show` prints. Keys match exactly and the first line with a key counts. It is not parsed
// without an "Agent Status" line, or when the output ends in the middle of that line's word.
func ArcText(out []byte) (Arc, bool) {
	t := arcTable{values: map[string]string{}}
	for line := range strings.Lines(plain(out)) {
		t.add(line)
	}
	if t.cutStatus {
		return Arc{}, false
	}
	arc := t.arc
	arc.Status = t.values[keyStatus]
	arc.MachineName = t.values["Resource Name"]
	arc.ResourceID = t.values["Resource Id"]
	arc.Location = t.values["Location"]
	arc.ResourceGroup = t.values["Resource Group Name"]
	arc.AgentVersion = t.values["Agent Version"]
	arc.ErrorCode = t.values["Agent Error Code"]
	arc.ErrorDetails = t.values[keyDetails]
	return arc.finish(t.values["Agent Last Heartbeat"])
}

// arcTable collects the lines of the text form.
type arcTable struct {
	arc        Arc               // its Services only
	values     map[string]string // first value of each key in tableKey
	inServices bool
	inDetails  bool
	column     int  // of the colon in the line with the error's details
	cutStatus  bool // the output ends within the status word
}

// add takes the next line, with its line end if it has one.
func (t *arcTable) add(line string) {
	if strings.TrimSpace(line) == "" {
		return
	}
	left, value, _ := strings.Cut(line, ":")
	key, value := strings.TrimSpace(left), strings.TrimSpace(value)
	if s, ok := serviceLine(key, value); ok && t.inServices {
		t.arc.addService(s)
		return
	}
	if t.inDetails && !t.startsField(key, left) {
		if d := t.values[keyDetails]; len(d) < maxDetail {
			t.values[keyDetails] = d + " " + strings.TrimSpace(line)
		}
		return
	}
	t.inServices, t.inDetails = key == keyServices, false
	if _, seen := t.values[key]; seen || !tableKey(key) || left == line {
		return
	}
	t.values[key] = value
	t.inDetails, t.column = key == keyDetails, len(left)
	if key == keyStatus && !strings.HasSuffix(line, "\n") {
		t.cutStatus = value != "Connected" && value != "Disconnected" && value != "Expired"
	}
}

// startsField tells a new field from a further line of the error's details: it has a key of the table, or its colon stands in the padded column.
func (t *arcTable) startsField(key, left string) bool {
	aligned := len(left) == t.column && strings.HasSuffix(left, " ")
	return aligned || tableKey(key) || key == keyServices
}

// tableKey tells the keys that are read, and those that can follow the error's details.
func tableKey(key string) bool {
	switch key {
	case "Resource Name", "Resource Group Name", "Resource Id", "Location", "Agent Version", keyStatus, "Agent Last Heartbeat",
		"Agent Error Code", keyDetails:
		return true
	case "Agent Error Timestamp", "Using HTTPS Proxy", "Proxy Bypass List", "Upstream Proxy", "Gateway URL", "Cloud Provider", "Portal Page":
		return true
	default:
		return false
	}
}

// serviceLine reads "  Agent Service (himdsd)   : active", split at its colon and trimmed.
func serviceLine(key, status string) (Service, bool) {
	display, rest, opened := strings.Cut(key, "(")
	name, closed := strings.CutSuffix(rest, ")")
	return Service{Name: name, DisplayName: display, Status: status}, opened && closed
}
