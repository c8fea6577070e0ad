package config

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const clusterResourceID = "/subscriptions/sub-C/resourceGroups/rg-C/providers/Microsoft.ContainerService/managedClusters/Cluster-1"

// complete is a config with nothing but what is required.
const complete = `{"azure": {"subscriptionId": "sub", "tenantId": "tenant", "managedIdentity": {},
	"targetCluster": {"resourceId": "` + clusterResourceID + `", "location": "westeurope"}}}`

// completeWith returns the complete config with the key at path set to a JSON value, or removed when that is empty.
func completeWith(t *testing.T, pathsAndValues ...string) []byte {
	t.Helper()
	var file map[string]any
	if err := json.Unmarshal([]byte(complete), &file); err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(pathsAndValues); i += 2 {
		setPath(file, strings.Split(pathsAndValues[i], "."), pathsAndValues[i+1])
	}
	data, err := json.MarshalIndent(file, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func setPath(section map[string]any, path []string, value string) {
	if len(path) > 1 {
		below, ok := section[path[0]].(map[string]any)
		if !ok {
			below = map[string]any{}
			section[path[0]] = below
		}
		setPath(below, path[1:], value)
		return
	}
	if value == "" {
		delete(section, path[0])
		return
	}
	section[path[0]] = json.RawMessage(value)
}

// mustLoad loads data that has no mistakes, without the environment.
func mustLoad(t *testing.T, data []byte, environ ...string) *Result {
	t.Helper()
	result, err := load("config.json", data, 0o600, environ)
	if err != nil {
		t.Fatalf("load: got %v, want no error, for:\n%s", err, data)
	}
	return result
}

// mistakes returns the errors of loading data as "path: message" lines.
func mistakes(t *testing.T, data []byte, environ ...string) []string {
	t.Helper()
	_, err := load("config.json", data, 0o600, environ)
	return lines(t, err)
}

func lines(t *testing.T, err error) []string {
	t.Helper()
	if err == nil {
		return nil
	}
	var all KeyErrors
	if !errors.As(err, &all) {
		t.Fatalf("got the error %v (%T), want KeyErrors", err, err)
	}
	var texts []string
	for _, one := range all {
		texts = append(texts, one.Error())
	}
	return texts
}

func warningTexts(result *Result) []string {
	var texts []string
	for _, w := range result.Warnings {
		texts = append(texts, w.String())
	}
	return texts
}

func wantLines(t *testing.T, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got:\n  %s\nwant:\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// writeFile puts data into a new file with this mode, whatever the umask.
func writeFile(t *testing.T, name string, data []byte, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

// testdata returns the contents of a file in the testdata folder.
func testdata(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}
