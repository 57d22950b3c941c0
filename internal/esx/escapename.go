package esx

import "strings"

// VMware keeps three characters escaped in the names of inventory objects, because an
// inventory path is written with slashes.
var (
	nameUnescaper = strings.NewReplacer("%2f", "/", "%2F", "/", "%5c", `\`, "%5C", `\`, "%25", "%")
	nameEscaper   = strings.NewReplacer("%", "%25", "/", "%2f", `\`, "%5c")
)

// unescapeName returns a name as people see it.
func unescapeName(s string) string { return nameUnescaper.Replace(s) }

// escapeName returns a name as one element of an inventory path.
func escapeName(s string) string { return nameEscaper.Replace(s) }
