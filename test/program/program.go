// Package program has the shared parts of tests of the real decamp binary: its build, and the
// comparison of published images with the disks of an emulator.
package program

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// BuiltEnv is the environment variable with the path of a decamp that is built already: a test that starts its
// own binary again sets it.
const BuiltEnv = "DECAMP_TEST_BUILT"

// Main builds decamp in a temporary folder, sets binary to its path, runs the tests and returns their
// exit code. Under -short it runs no test, because all of them start the program.
func Main(m *testing.M, binary *string) int {
	flag.Parse()
	if testing.Short() {
		fmt.Println("left out under -short: these tests start decamp")
		return 0
	}
	// Under nohup, as in some CI systems, SIGHUP is ignored, also by child processes. After Notify,
	// children get the signal's default action.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	if built := os.Getenv(BuiltEnv); built != "" {
		*binary = built
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "decamp-built-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	*binary = filepath.Join(dir, "decamp")
	if err := Build(*binary); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// Build builds decamp at the path binary, with these build tags.
func Build(binary string, tags ...string) error {
	return build(binary, "-ldflags=-s -w", "-tags="+strings.Join(tags, ","))
}

// BuildVersion builds decamp at the path binary, with another version.
func BuildVersion(binary, version string) error {
	return build(binary, "-ldflags=-s -w -X github.com/decamp/decamp/internal/buildinfo.linked="+version)
}

// build builds decamp with these flags: static and stripped, as in a release, even if the tests are not.
func build(binary string, flags ...string) error {
	build := exec.Command("go", append(append([]string{"build"}, flags...), "-o", binary, "github.com/decamp/decamp/cmd/decamp")...)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build decamp: %w: %s", err, out)
	}
	return nil
}

// Wide sets the number of parallel tests for packages whose tests mostly wait, for a slow host, a
// checkpoint or a retry. With Go's default, the number of processors, the processors would be idle. It
// must be called before Main; -parallel on the command line takes precedence.
func Wide(tests int) {
	const name = "test.parallel"
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == name })
	if !given {
		_ = flag.Set(name, strconv.Itoa(tests)) // the number is valid
	}
}

// Requires skips the test if a tool is missing. scripts/setup.sh installs it, and scripts/test.sh
// permits no skipped test.
func Requires(t *testing.T, tool string) {
	t.Helper()
	if _, err := exec.LookPath(tool); err != nil {
		t.Skipf("%s is not installed: scripts/setup.sh test", tool)
	}
}
