//go:build !slow

package nfs

// slow says that there is time for everything.
const slow = false
