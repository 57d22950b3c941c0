//go:build !stepwise

package main

import "time"

// maxPatience is the time for which a run waits until its event is printed, so that other messages follow it.
// Runs lose it once until the output is read again.
const maxPatience = 100 * time.Millisecond
