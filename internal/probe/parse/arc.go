package parse

import "time"

// maxServices bounds Arc.Services; the agent has four or five.
const maxServices = 32

// Arc is what `azcmagent show` says about the machine's connection to Azure.
type Arc struct {
	// Registered is true when the machine has a resource id or a name in Azure, connected or not.
	Registered bool
	// Connected is true only when Status is exactly "Connected".
	Connected bool
	// Status is the agent's own word, never empty in a parsed output: Connected, Disconnected, Expired, or one not known yet.
	Status string
	// MachineName, ResourceID, Location and ResourceGroup are empty when the machine is not registered.
	MachineName   string
	ResourceID    string
	Location      string
	ResourceGroup string
	// LastHeartbeat keeps the offset that the agent printed. It is zero when there was none or its zone cannot be told, and
	// can always be written as JSON.
	LastHeartbeat time.Time
	// AgentVersion carries no leading v.
	AgentVersion string
	// ErrorCode and ErrorDetails are the agent's last error, empty when it has none.
	ErrorCode    string
	ErrorDetails string
	// Services are those that the agent depends on, in printed order, at most 32; nil when not printed.
	Services []Service
}

// Service is one of the services that the Arc agent depends on. Name is the service manager's ("himdsd"), Status its word ("active" on
// Linux, "running" on Windows).
type Service struct {
	Name        string
	DisplayName string
	Status      string
}

// finish cleans the texts of an Arc as they were read and derives the rest. An output without a status word says nothing about the
// connection, so it counts as not parsed instead of as disconnected.
func (a Arc) finish(lastHeartbeat string) (Arc, bool) {
	a.Status = clean(a.Status, maxName)
	if a.Status == "" {
		return Arc{}, false
	}
	a.MachineName = clean(a.MachineName, maxName)
	a.ResourceID = clean(a.ResourceID, maxDetail)
	a.Location = clean(a.Location, maxName)
	a.ResourceGroup = clean(a.ResourceGroup, maxName)
	a.AgentVersion = VersionText(a.AgentVersion)
	a.ErrorCode = clean(a.ErrorCode, maxName)
	a.ErrorDetails = clean(a.ErrorDetails, maxDetail)
	a.LastHeartbeat = heartbeat(clean(lastHeartbeat, maxName))
	a.Registered = a.ResourceID != "" || a.MachineName != ""
	a.Connected = a.Status == "Connected"
	return a, true
}

// addService appends a service if it has a name and there is room.
func (a *Arc) addService(s Service) {
	if len(a.Services) >= maxServices {
		return
	}
	s = Service{Name: clean(s.Name, maxName), DisplayName: clean(s.DisplayName, maxName), Status: clean(s.Status, maxName)}
	if s.Name != "" || s.DisplayName != "" {
		a.Services = append(a.Services, s)
	}
}

// heartbeat reads a time that says its zone, and returns the zero time for everything else, also for what Go and .NET print for "never".
func heartbeat(s string) time.Time {
	t, ok := parseTime(s)
	// Parse takes offsets and years that JSON cannot carry; one such value would make a whole snapshot unwritable.
	if _, err := t.MarshalJSON(); !ok || err != nil || t.Year() <= 1 {
		return time.Time{}
	}
	return t
}

func parseTime(s string) (time.Time, bool) {
	// ParseInLocation, because Parse lets this machine's own zone decide what "PST" means.
	for _, layout := range [...]string{time.RFC3339, "2006-01-02 15:04:05Z07:00", "2006-01-02 15:04:05 -0700 MST", time.RFC822Z, time.RFC1123Z} {
		if t, err := time.ParseInLocation(layout, s, time.UTC); err == nil {
			return t, true
		}
	}
	for _, layout := range [...]string{time.RFC822, time.RFC1123} {
		t, err := time.ParseInLocation(layout, s, time.UTC)
		if err != nil {
			continue
		}
		// Other abbreviations are not unique, and Go gives those it does not know the offset 0.
		if zone, _ := t.Zone(); zone == "UTC" || zone == "GMT" {
			return t, true
		}
	}
	return time.Time{}, false
}
