package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
)

// cutReleaseNotes returns the section of the version in CHANGELOG.md. Without a tag, the section may still have
// the heading Unreleased.
func (r *release) cutReleaseNotes() ([]byte, error) {
	changelog, err := os.ReadFile(filepath.Join(r.root, "CHANGELOG.md"))
	if err != nil {
		return nil, err
	}
	notes := cutSection(changelog, r.version)
	if notes == nil && !r.tagged {
		notes = cutSection(changelog, "Unreleased")
	}
	if notes == nil {
		return nil, fmt.Errorf("CHANGELOG.md has no section %s: rename the section Unreleased", r.version)
	}
	return fmt.Appendf(nil, "# decamp %s\n\n%s\n", r.version, notes), nil
}

// cutSection returns the text below a heading such as "## 0.1.0" or "## 0.1.0 - 2026-12-01"; nil if there is none.
func cutSection(changelog []byte, heading string) []byte {
	at := regexp.MustCompile(`(?m)^## \[?` + regexp.QuoteMeta(heading) + `\]?( .*)?\n`).FindIndex(changelog)
	if at == nil {
		return nil
	}
	section := changelog[at[1]:]
	if next := bytes.Index(section, []byte("\n## ")); next >= 0 {
		section = section[:next]
	}
	return bytes.TrimSpace(section)
}
