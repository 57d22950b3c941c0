package tree

import (
	"path"
	"slices"
	"strings"
)

// Glob returns the sorted paths that match a pattern of path.Match. Only the last element may have
// wildcards; the folder is used literally. A folder that does not exist or cannot be read has no
// matches.
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

// Has reports whether path exists. It returns false if a folder of the path cannot be read.
func Has(fs FS, path string) bool {
	_, err := fs.Open(path)
	return err == nil
}
