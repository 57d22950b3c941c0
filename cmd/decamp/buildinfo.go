package main

import (
	"fmt"
	"runtime"
)

// version is set by the build (-ldflags "-X main.version=…"). vm.json contains it.
var version = "unknown"

// versionLine returns the line that decamp version and decamp --version print.
func versionLine() string {
	return fmt.Sprintf("decamp %s (%s, %s)\n", version, runtime.Version(), platform())
}

// platform returns the operating system and the architecture of the binary.
func platform() string { return runtime.GOOS + "/" + runtime.GOARCH }
