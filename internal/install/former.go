package install

import (
	"path"
	"slices"
	"strings"
)

// isFormers says whether a unit file of our service's name is that of the former agent, as nodes in the field have it: it runs the program
// at our place, and has the same folder in /run. One that runs anything else is somebody's own.
func isFormers(unit string) bool {
	runs, folder := false, false
	for _, s := range settings(unit) {
		switch s.key {
		case "ExecStart":
			program, _, _ := strings.Cut(strings.TrimLeft(s.value, "-@:+!"), " ")
			runs = program == ProgramPath
		case "RuntimeDirectory":
			folder = slices.Contains(strings.Fields(s.value), path.Base(StateDir))
		}
	}
	return runs && folder
}

// environmentLines returns the lines of a unit file that give its program an environment, such as a proxy, without values that may be
// secret.
func environmentLines(unit string) []string {
	var lines []string
	for _, s := range settings(unit) {
		switch s.key {
		case "EnvironmentFile":
			lines = append(lines, s.key+"="+s.value)
		case "Environment", "PassEnvironment":
			var names []string
			for v := range strings.FieldsSeq(s.value) {
				if name, _, ok := strings.Cut(strings.Trim(v, `"'`), "="); ok || s.key == "PassEnvironment" {
					names = append(names, name)
				}
			}
			lines = append(lines, s.key+"="+strings.Join(names, "=… "))
			if s.key == "Environment" {
				lines[len(lines)-1] += "=…"
			}
		}
	}
	return lines
}

type setting struct{ section, key, value string }

// settings reads a unit file's lines, as systemd.syntax(7) has it: comments, continued lines, blanks around the equals sign.
func settings(unit string) []setting {
	var all []setting
	section, line := "", ""
	for text := range strings.Lines(unit) {
		text = strings.TrimSpace(text)
		if strings.HasPrefix(text, "#") || strings.HasPrefix(text, ";") {
			continue // also between the parts of a continued line
		}
		if part, more := strings.CutSuffix(text, `\`); more {
			line += part + " "
			continue
		}
		line += text
		key, value, ok := strings.Cut(line, "=")
		switch {
		case strings.HasPrefix(line, "["):
			section = strings.Trim(line, "[]")
		case ok:
			all = append(all, setting{section, strings.TrimSpace(key), strings.TrimSpace(value)})
		}
		line = ""
	}
	return all
}
