package config

import "strings"

// nearestKey returns the path of the known key that name, found in the section at path, was most likely meant to be.
// Nearest is a similar name in the same section, else all but the same name in a section close by: a key put one level
// too high or low is as common as a misspelt one. Empty when nothing is near, or two in other sections are equally so.
func nearestKey(keys []key, path, name string) string {
	name = strings.ToLower(name)
	var best struct {
		path        string
		score, away int
		tie         bool
	}
	for _, k := range keys {
		section, known := splitPath(k.Path)
		away := sectionsApart(section, path)
		allowed := tolerance(known)
		if away > 0 {
			allowed = min(allowed, 1)
		}
		typos := distance(name, strings.ToLower(known))
		if typos > allowed {
			continue
		}
		score := typos + 2*away
		switch {
		case best.path == "" || score < best.score || score == best.score && away < best.away:
			best.path, best.score, best.away, best.tie = k.Path, score, away, false
		case score == best.score && away == best.away:
			best.tie = away > 0
		}
	}
	if best.tie {
		return ""
	}
	return best.path
}

// nearestName returns the name most like the given one, empty when none is.
func nearestName(names []string, name string) string {
	best, bestTypos := "", 4
	for _, known := range names {
		if typos := distance(name, known); typos < bestTypos {
			best, bestTypos = known, typos
		}
	}
	return best
}

// splitPath splits "a.b.c" into "a.b" and "c".
func splitPath(path string) (section, name string) {
	if i := strings.LastIndexByte(path, '.'); i >= 0 {
		return path[:i], path[i+1:]
	}
	return "", path
}

// sectionsApart counts the steps up and down from one section to the other.
func sectionsApart(a, b string) int {
	left, right := sections(a), sections(b)
	for len(left) > 0 && len(right) > 0 && left[0] == right[0] {
		left, right = left[1:], right[1:]
	}
	return len(left) + len(right)
}

func sections(path string) []string {
	if path == "" {
		return nil
	}
	return strings.Split(path, ".")
}

// tolerance is how many typos a name of this length forgives.
func tolerance(name string) int {
	switch {
	case len(name) <= 3:
		return 1
	case len(name) <= 8:
		return 2
	default:
		return 3
	}
}

// distance is the Levenshtein distance in bytes. Lengths too far apart for any suggestion are not measured, which bounds
// the work on the names of a hostile file.
func distance(a, b string) int {
	if apart := max(len(a)-len(b), len(b)-len(a)); apart > 3 {
		return apart
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
