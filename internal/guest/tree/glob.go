package tree

import (
	"path"
	"slices"
	"strings"
)

// Glob returns the paths that match a pattern as path.Match knows it, in order. The
// folder of the pattern is taken as it is: only the last element may have wildcards.
// A folder that is not there, or cannot be read, has no match.
func Glob(fs FS, pattern string) []string {
	dir, last := path.Split(pattern)
	entries, err := fs.ReadDir(dir)
	if err != nil {
		return nil
	}
	var found []string
	for _, e := range entries {
		if ok, err := path.Match(last, e.Name); ok && err == nil && !strings.Contains(e.Name, "/") {
			found = append(found, dir+e.Name)
		}
	}
	slices.Sort(found)
	return found
}

// Has reports whether there is anything at path.
func Has(fs FS, path string) bool {
	_, err := fs.Open(path)
	return err == nil
}
