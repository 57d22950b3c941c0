//go:build !slow

package lane

// Slow reports whether all variants run.
const Slow = false
