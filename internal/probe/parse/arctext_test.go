package parse

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

const (
	resourceID = "/subscriptions/1111/resourceGroups/rg-edge/providers/Microsoft.HybridCompute/machines/node01edge"

	arcTable1 = `Resource Name                           : node01edge
Resource Group Name                     : rg-edge
Resource Namespace                      : Microsoft.HybridCompute
Resource Id                             : ` + resourceID + `
Location                                : westeurope
Agent Version                           : 1.58.03228.700
Agent Status                            : Disconnected
Agent Last Heartbeat                    : 2025-11-19T22:00:00Z
Agent Error Code                        : AZCM0026
Agent Error Details                     : Get "https://weu.example.com": dial tcp 10.0.0.9:3128:
  connect: connection refused
Agent Status                            : Connected?

see https://example.com/help: step 2
Agent Error Timestamp                   : 2025-11-19T22:05:00Z
Using HTTPS Proxy                       : http://10.0.0.9:3128
Upstream Proxy                          :
Cloud Metadata
Model (board)                           : NUC
Dependent Service Status
  Agent Service (himdsd)                : active

  Azure Arc Proxy (arcproxyd)           : failed
Portal Page                             : https://portal.example.com/#@x (y): z
Disabled Features                       :
`
)

func TestArcTextReadsEveryField(t *testing.T) {
	want := Arc{
		Registered: true, Connected: false, Status: "Disconnected", MachineName: "node01edge", ResourceID: resourceID,
		Location: "westeurope", ResourceGroup: "rg-edge", LastHeartbeat: time.Date(2025, 11, 19, 22, 0, 0, 0, time.UTC),
		AgentVersion: "1.58.03228.700", ErrorCode: "AZCM0026",
		ErrorDetails: `Get "https://weu.example.com": dial tcp 10.0.0.9:3128: connect: connection refused`,
		Services: []Service{
			{Name: "himdsd", DisplayName: "Agent Service", Status: "active"},
			{Name: "arcproxyd", DisplayName: "Azure Arc Proxy", Status: "failed"},
		},
	}
	got, ok := ArcText([]byte(arcTable1))
	if !ok || !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v, parsed %v\nwant %+v", got, ok, want)
	}
	crlf, ok := ArcText([]byte(strings.ReplaceAll(arcTable1, "\n", "\r\n")))
	if !ok || !reflect.DeepEqual(crlf, want) {
		t.Errorf("with CRLF: got  %+v, parsed %v\nwant %+v", crlf, ok, want)
	}
}

func TestArcTextErrorDetailsMayContinue(t *testing.T) {
	const before = "Agent Status           : Expired\nAgent Error Details    : one: two\n"
	for _, tc := range []struct{ given, after, want string }{
		{"up to a known key", "three: four\n\nfive\nAgent Error Timestamp  : x\nsix\n", "one: two three: four five"},
		{"up to a known key in other columns", "three\nUsing HTTPS Proxy: x\nsix: seven\n", "one: two three"},
		{"up to an unknown key in the same column", "three\nAgent Error Severity   : x\nsix\n", "one: two three"},
		{"up to the services", "three\nDependent Service Status\n  A (b) : c\n", "one: two three"},
		{"up to the end", "three", "one: two three"},
		{"not at all", "", "one: two"},
		{"within bounds", strings.Repeat("0123456789\n", 1000), "one: two" + strings.Repeat(" 0123456789", 100)[:maxDetail-len("one: two")]},
	} {
		t.Run(tc.given, func(t *testing.T) {
			got, ok := ArcText([]byte(before + tc.after))
			if !ok || got.ErrorDetails != tc.want {
				t.Errorf("got %q, parsed %v, want %q", got.ErrorDetails, ok, tc.want)
			}
		})
	}
}

func TestArcTextErrorDetailsWithoutPaddingHaveNoColumnThatEndsThem(t *testing.T) {
	got, ok := ArcText([]byte("Agent Status: Expired\nAgent Error Details: one\ndial tcp 10.0.0.123: refused\n"))
	if want := "one dial tcp 10.0.0.123: refused"; !ok || got.ErrorDetails != want {
		t.Errorf("got %q, parsed %v, want %q", got.ErrorDetails, ok, want)
	}
}

func TestArcTextStatus(t *testing.T) {
	for _, tc := range []struct {
		given, out string
		want       string // "" means not parsed
	}{
		{"connected", "Agent Status : Connected\n", "Connected"},
		{"no padding", "Agent Status: Connected\n", "Connected"},
		{"tabs", "Agent Status\t:\tConnected\n", "Connected"},
		{"whole table indented", "  Resource Name : n\n  Agent Status  : Connected\n", "Connected"},
		{"in colour", "Agent Status : \x1b[32mConnected\x1b[0m\n", "Connected"},
		{"no line end, whole word", "Agent Status : Connected", "Connected"},
		{"no line end, whole word of another kind", "Agent Status : Expired", "Expired"},
		{"a word not known yet", "Agent Status : Degraded\n", "Degraded"},
		{"other case is not the word", "Agent Status : connected\n", "connected"},
		{"more than the word", "Agent Status : Connected (degraded)\n", "Connected (degraded)"},
		{"a broken byte in the word", "Agent Status : Connected\xff\n", "Connected\ufffd"},
		{"a heading of that name in front", "Agent Status\nAgent Status : Connected\n", "Connected"},
		{"the first counts", "Agent Status : Expired\nAgent Status : Connected\n", "Expired"},
		{"log lines in front", "time=\"2026-01-01T00:00:00Z\" level=warning msg=\"Agent Status : Connected\"\nAgent Status : Disconnected\n", "Disconnected"},

		{"cut in the word", "Agent Status : Conn", ""},
		{"cut in the word, longer", "Agent Status : Disconnecte", ""},
		{"cut before the word", "Agent Status :", ""},
		{"no word", "Agent Status :\nAgent Last Heartbeat :\n", ""},
		{"no colon", "Agent Status Connected\n", ""},
		{"half a table", "Resource Name : node01edge\nResource Id : " + resourceID + "\nAgent Version : 1.58\n", ""},
		{"keys that only look alike", "Upstream Agent Status : Connected\nAgent Status Detail : Connected\nagent status : Connected\nStatus : Connected\n", ""},
		{"localised", "Ressourcenname : n\nAgentstatus : Verbunden\nAgent-Status : Connected\n", ""},
		{"a service of that name", "Dependent Service Status\n  Agent Status (himdsd) : Connected\n", ""},
		{"fatal error", "time=\"2026-01-01T00:00:00Z\" level=fatal msg=\"Error: AZCM0000: exit status 1\"\n", ""},
		{"needs rights", "ERROR   This command requires root privileges: run it with sudo\nUse \"azcmagent [command] --help\" for more information\n", ""},
		{"usage", "Usage:\n  azcmagent show [flags]\n\nFlags:\n  -j, --json   Output: JSON\n", ""},
		{"the JSON form", "{\n  \"status\": \"Connected\",\n  \"resourceName\": \"n\"\n}\n", ""},
		{"HTML", htmlPage, ""},
		{"nothing", "", ""},
		{"flood", flood, ""},
	} {
		t.Run(tc.given, func(t *testing.T) {
			got, ok := ArcText([]byte(tc.out))
			if got.Status != tc.want || ok != (tc.want != "") {
				t.Errorf("got status %q, parsed %v, want %q", got.Status, ok, tc.want)
			}
			if got.Connected != (tc.want == "Connected") {
				t.Errorf("got connected %v with status %q", got.Connected, got.Status)
			}
			if !ok && !reflect.ValueOf(got).IsZero() {
				t.Errorf("not parsed, but got %+v, want the zero value", got)
			}
		})
	}
}

func TestArcTextRegisteredFollowsFromIDOrName(t *testing.T) {
	for _, tc := range []struct {
		given, out string
		want       bool
	}{
		{"id and name, disconnected", "Resource Name : n\nResource Id : /x\nAgent Status : Disconnected\n", true},
		{"name only", "Resource Name : n\nAgent Status : Expired\n", true},
		{"id only", "Resource Id : /x\nAgent Status : Connected\n", true},
		{"neither", "Resource Name :\nResource Id :\nVM ID : x\nAgent Status : Connected\n", false},
	} {
		t.Run(tc.given, func(t *testing.T) {
			if got, ok := ArcText([]byte(tc.out)); !ok || got.Registered != tc.want {
				t.Errorf("got registered %v, parsed %v, want %v", got.Registered, ok, tc.want)
			}
		})
	}
}

func TestArcTextIsBounded(t *testing.T) {
	long := strings.Repeat("é", 4000)
	out := "Resource Name : " + long + "\nResource Id : " + long + "\nAgent Status : " + long + "\nDependent Service Status\n" +
		strings.Repeat("  A (b) : c\n", 1000)
	got, ok := ArcText([]byte(out))
	if !ok || len(got.MachineName) != maxName || len(got.ResourceID) != maxDetail || len(got.Status) != maxName || len(got.Services) != maxServices {
		t.Errorf("got name %d, id %d, status %d bytes and %d services, parsed %v", len(got.MachineName), len(got.ResourceID), len(got.Status), len(got.Services), ok)
	}
}

func TestHeartbeat(t *testing.T) {
	for _, tc := range []struct{ given, text, want string }{
		{"RFC 3339", "2024-08-05T05:00:17Z", "2024-08-05T05:00:17Z"},
		{"the printed offset is kept", "2025-02-13T11:09:09.1234567-08:00", "2025-02-13T11:09:09.1234567-08:00"},
		{"space for T", "2024-08-05 05:00:17+02:00", "2024-08-05T05:00:17+02:00"},
		{"as Go prints a time", "2024-08-05 05:00:17.25 +0000 UTC", "2024-08-05T05:00:17.25Z"},
		{"RFC 822", "05 Dec 19 01:36 UTC", "2019-12-05T01:36:00Z"},
		{"RFC 822 with offset", "05 Dec 19 01:36 -0800", "2019-12-05T01:36:00-08:00"},
		{"RFC 1123", "Thu, 05 Dec 2019 01:36:02 GMT", "2019-12-05T01:36:02Z"},
		{"RFC 1123 with offset", "Thu, 05 Dec 2019 01:36:02 +0100", "2019-12-05T01:36:02+01:00"},

		{"empty", "", ""},
		{"Go's never", "0001-01-01T00:00:00Z", ""},
		{".NET's never, in a zone", "0001-01-01T00:00:00-08:00", ""},
		{"a zone that is not unique", "05 Dec 19 01:36 PST", ""},
		{"an offset in letters", "05 Dec 19 01:36 GMT+3", ""},
		{"no zone", "2024-08-05T05:00:17", ""},
		{"cut off", "2024-08-05T05:00", ""},
		{"an offset that JSON cannot carry", "2024-08-05T05:00:17+24:00", ""},
		{"no such day", "2024-02-30T05:00:17Z", ""},
		{"a word", "never", ""},
		{"seconds since 1970", "1733362560", ""},
	} {
		t.Run(tc.given, func(t *testing.T) {
			got := heartbeat(tc.text)
			if tc.want == "" {
				if got != (time.Time{}) {
					t.Errorf("got %v, want the zero time", got)
				}
				return
			}
			if text := got.Format(time.RFC3339Nano); text != tc.want {
				t.Errorf("got %s, want %s", text, tc.want)
			}
			if _, err := got.MarshalJSON(); err != nil {
				t.Errorf("cannot be written as JSON: %v", err)
			}
		})
	}
}
