//go:build slow

package nfs

// slow reports whether the build has the tag slow.
const slow = true
