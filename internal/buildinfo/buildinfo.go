// Package buildinfo describes the build of a program: its version, the Go release and the platform.
package buildinfo

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// linked is the version that the build sets: -ldflags "-X github.com/decamp/decamp/internal/buildinfo.linked=0.1.0".
var linked string

// Info describes the build of the running program. The JSON form is the output of version --json.
type Info struct {
	Version  string `json:"version"`  // release, or the commit of a development build; never empty
	Go       string `json:"go"`       // release of Go
	Platform string `json:"platform"` // operating system and architecture, such as linux/amd64
}

// Current returns the build of the running program.
func Current() Info {
	module, _ := debug.ReadBuildInfo()
	return Info{cmp.Or(linked, moduleVersion(module)), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
}

// Line returns the line that the command version of a program prints.
func (i Info) Line(program string) string {
	return fmt.Sprintf("%s %s (%s, %s)\n", program, i.Version, i.Go, i.Platform)
}

// moduleVersion returns the version of the main module: a release with go install, the last commit with go
// build in a clone, and devel in a test and without a repository.
func moduleVersion(build *debug.BuildInfo) string {
	if build == nil || build.Main.Version == "" || build.Main.Version == "(devel)" {
		return "devel"
	}
	return strings.TrimPrefix(build.Main.Version, "v")
}
