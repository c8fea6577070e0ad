package parse

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

const arcObject = `{
  "resourceName": "node01edge",
  "resourceGroup": "rg-edge",
  "resourceId": "` + resourceID + `",
  "location": "westeurope",
  "agentVersion": "1.58.03228.700",
  "status": "Connected",
  "lastHeartbeat": "2025-11-19T23:34:03Z",
  "agentErrorCode": "AZCM0026",
  "agentErrorDetails": "Get \"https://x\":\n dial tcp: {refused}",
  "proxyBypass": ["Arc", "AMA"],
  "services": [
    {
      "displayName": "Agent Service",
      "serviceName": "himdsd",
      "status": "active"
    }
  ]
}
`

func TestArcJSONReadsEveryFieldWhateverSurroundsTheObject(t *testing.T) {
	want := Arc{
		Registered: true, Connected: true, Status: "Connected", MachineName: "node01edge", ResourceID: resourceID, Location: "westeurope",
		ResourceGroup: "rg-edge", LastHeartbeat: time.Date(2025, 11, 19, 23, 34, 3, 0, time.UTC), AgentVersion: "1.58.03228.700",
		ErrorCode: "AZCM0026", ErrorDetails: `Get "https://x": dial tcp: {refused}`,
		Services: []Service{{Name: "himdsd", DisplayName: "Agent Service", Status: "active"}},
	}
	for _, tc := range []struct{ given, out string }{
		{"nothing", arcObject},
		{"no line end", strings.TrimSpace(arcObject)},
		{"CRLF", strings.ReplaceAll(arcObject, "\n", "\r\n")},
		{"BOM and NUL", "\ufeff\x00" + arcObject},
		{"indent", " \t" + arcObject},
		{"a log line with braces", "level=warning msg=\"unable to reach {endpoint}\" {\"status\":\"Expired\"}\n" + arcObject},
		{"a log line that begins with a brace", "{endpoint} cannot be reached\n" + arcObject},
		{"a lone brace", "{\n" + arcObject},
		{"JSON log lines", strings.Repeat("{\"level\":\"warning\",\"status\":\"Expired\",\"msg\":\"retry\"} tail\n", 200) + arcObject},
		{"a JSON log line that is cut", "{\"level\":\"warning\",\"msg\":\"ret\n" + arcObject},
		{"text behind", arcObject + "A newer version is available: 1.99 {\n"},
		{"text right behind", strings.TrimSpace(arcObject) + "trailing}"},
		{"a second object", arcObject + strings.ReplaceAll(arcObject, "Connected", "Expired")},
		{"a flood behind", arcObject + flood},
		{"colours", "\x1b[32m" + arcObject + "\x1b[0m"},
		{"an empty object in front", "{}\n" + arcObject},
	} {
		t.Run(tc.given, func(t *testing.T) {
			got, ok := ArcJSON([]byte(tc.out))
			if !ok || !reflect.DeepEqual(got, want) {
				t.Errorf("got  %+v, parsed %v\nwant %+v", got, ok, want)
			}
		})
	}
}

func TestArcJSONToleratesOtherKeysAndTypes(t *testing.T) {
	for _, tc := range []struct {
		given, out string
		want       Arc
	}{
		{"keys seen in scripts", `{"agentStatus":"Connected","resourceName":"n","resourceGroupName":"rg"}`, Arc{Registered: true, Connected: true, Status: "Connected", MachineName: "n", ResourceGroup: "rg"}},
		{"agentStatus alone", `{"agentStatus":"Disconnected"}`, Arc{Status: "Disconnected"}},
		{"status counts before agentStatus", `{"agentStatus":"Connected","status":"Expired","resourceName":"n"}`, Arc{Registered: true, Status: "Expired", MachineName: "n"}},
		{"agentStatus where status is empty", `{"status":"","agentStatus":"Expired","resourceName":"n"}`, Arc{Registered: true, Status: "Expired", MachineName: "n"}},
		{"keys as Go names them", `{"ResourceName":"n","ResourceID":"/x","Status":"Connected"}`, Arc{Registered: true, Connected: true, Status: "Connected", MachineName: "n", ResourceID: "/x"}},
		{"nulls", `{"resourceName":null,"resourceId":null,"status":"Disconnected","lastHeartbeat":null,"services":null}`, Arc{Status: "Disconnected"}},
		{"numbers", `{"status":"Disconnected","agentErrorCode":26,"agentVersion":1.58,"lastHeartbeat":1733362560}`, Arc{Status: "Disconnected", ErrorCode: "26", AgentVersion: "1.58"}},
		{"lists and objects for texts", `{"status":"Expired","resourceName":["n"],"location":{"a":"b"},"proxyBypass":{"a":[1]}}`, Arc{Status: "Expired"}},
		{"services that are no list", `{"status":"Expired","vmId":"x","services":{"himdsd":"active"}}`, Arc{Status: "Expired"}},
		{"services of mixed types", `{"status":"Expired","vmId":"x","services":["himdsd",null,{"serviceName":"extd","status":1},{"status":"active"},[]]}`, Arc{Status: "Expired", Services: []Service{{Name: "extd", Status: "1"}}}},
		{"escaped control characters", `{"status":"\u001b[32mConnected\u001b[0m","resourceName":"a\u0000\u202eb\u0007\r\nc\ud800"}`, Arc{Registered: true, Connected: true, Status: "Connected", MachineName: "ab c\ufffd"}},
		{"other case is not the word", `{"status":"CONNECTED","vmId":""}`, Arc{Status: "CONNECTED"}},
		{"a leading v", `{"status":"Expired","agentVersion":"v1.58"}`, Arc{Status: "Expired", AgentVersion: "1.58"}},
		{"unknown keys of any depth", `{"status":"Expired","vmId":"x","extra":[[{"status":"Connected"}]]}`, Arc{Status: "Expired"}},
	} {
		t.Run(tc.given, func(t *testing.T) {
			got, ok := ArcJSON([]byte(tc.out))
			if !ok || !reflect.DeepEqual(got, tc.want) {
				t.Errorf("got  %+v, parsed %v\nwant %+v", got, ok, tc.want)
			}
		})
	}
}

func TestArcJSONTakesNothingElseForTheAgentsAnswer(t *testing.T) {
	inService := strings.Index(arcObject, "]\n}")
	for _, tc := range []struct{ given, out string }{
		{"nothing", ""},
		{"an empty object", "{}"},
		{"an error", `{"error":{"code":"AZCM0102","message":"denied","status":"Connected"}}`},
		{"Azure's failed operation", `{"status":"Failed","error":{"code":"AuthorizationFailed"}}`},
		{"a JSON log line with a status", `{"level":"info","msg":"x","status":"Connected"}`},
		{"a service", `{"displayName":"Agent Service","serviceName":"himdsd","status":"active"}`},
		{"no status", `{"resourceName":"n","resourceId":"/x","agentVersion":"1.58"}`},
		{"an empty status", `{"resourceName":"n","status":""}`},
		{"a status that is no text", `{"resourceName":"n","status":{"value":"Connected"}}`},
		{"cut off after the services", arcObject[:inService+1]},
		{"cut off within the services", arcObject[:inService]},
		{"only the closing brace missing", strings.TrimSuffix(arcObject, "}\n")},
		{"an answer inside an object that is cut off", "{\"cached\":\n" + arcObject},
		{"an answer inside another object", "{\"cached\":\n" + arcObject + "}\n"},
		{"torn by a log line", strings.Replace(arcObject, "\"location\"", "level=warning\n\"location\"", 1)},
		{"longer than what is looked at", strings.Replace(arcObject, "node01edge", flood, 1)},
		{"an object inside a line", "answer: " + strings.ReplaceAll(arcObject, "\n", "")},
		{"another kind of value", "null\n[1]\n\"{\"\n7\n"},
		{"the text form", arcTable1},
		{"HTML", htmlPage + "{margin:0}\n"},
		{"fatal error", "time=\"2026-01-01T00:00:00Z\" level=fatal msg=\"Error: AZCM0000\"\n"},
		{"objects in objects without end", strings.Repeat("{\"a\":\n", maxInput/6)},
		{"broken objects without end", strings.Repeat("{x\n", maxInput/3)},
		{"flood", flood},
	} {
		t.Run(tc.given, func(t *testing.T) {
			if got, ok := ArcJSON([]byte(tc.out)); ok || !reflect.ValueOf(got).IsZero() {
				t.Errorf("got %+v, parsed %v, want the zero value, not parsed", got, ok)
			}
		})
	}
}
