// Package logging writes the log of the program as text, as JSON or to the journal of systemd.
//
// Attributes have the same names everywhere: run is the ID of a run, plan, vm and worker name objects of a fleet. The
// API, events and journals use the same names, so that one ID finds everything about a run.
package logging

import (
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
)

// Format is the format of a log.
type Format string

// Formats.
const (
	Text    Format = "text"    // key=value
	JSON    Format = "json"    // one JSON object per line
	Journal Format = "journal" // native protocol of systemd's journal, with a field for each attribute
)

// formats are all formats.
var formats = []Format{Text, JSON, Journal}

// ParseFormat returns the format of that name.
func ParseFormat(name string) (Format, error) {
	if !slices.Contains(formats, Format(name)) {
		return "", fmt.Errorf("%q is no format of logs: want text, json or journal", name)
	}
	return Format(name), nil
}

// IsStructured reports whether other programs read the log. Messages for users are then part of the log.
func (f Format) IsStructured() bool { return f == JSON || f == Journal }

// NewHandler returns a handler for records of level and above. Journal requires the socket of the journal; the other
// formats write to w.
func NewHandler(f Format, w io.Writer, level slog.Level) (slog.Handler, error) {
	options := &slog.HandlerOptions{Level: level}
	switch f {
	case JSON:
		return slog.NewJSONHandler(w, options), nil
	case Journal:
		return newJournal(journalSocket, level)
	}
	return slog.NewTextHandler(w, options), nil
}

// fieldName returns the name of a journal field for an attribute: upper-case letters, digits and underscores, and no
// underscore at the beginning (systemd.journal-fields(7)).
func fieldName(attribute string) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, attribute)
	name = strings.TrimLeft(name, "_0123456789")
	if name == "" || slices.Contains(ownFields, name) {
		name = "DECAMP_" + name
	}
	return name[:min(len(name), 64)]
}
