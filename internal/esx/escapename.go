package esx

import "strings"

// VMware keeps three characters escaped in the names of inventory objects, because an
// inventory path is written with slashes.
var (
	// replaces escapes in either case
	nameUnescaper = strings.NewReplacer("%2f", "/", "%2F", "/", "%5c", `\`, "%5C", `\`, "%25", "%")
	nameEscaper   = strings.NewReplacer("%", "%25", "/", "%2f", `\`, "%5c") // escapes in lower case, like VMware's
)

// unescapeName returns the name that the vSphere user interface shows.
func unescapeName(s string) string { return nameUnescaper.Replace(s) }

// escapeName returns a name in the form of one element of an inventory path.
func escapeName(s string) string { return nameEscaper.Replace(s) }
