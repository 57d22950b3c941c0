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

	"github.com/decamp/decamp/test/repository"
)

// BuiltEnv is the environment variable with the path of a decamp that is already built. A test that starts its test
// binary again sets it.
const BuiltEnv = "DECAMP_TEST_BUILT"

// Main builds decamp in a temporary folder, sets binary to its path, runs the tests and returns their
// exit code. Under -short it runs no test, because all of them start the program.
func Main(m *testing.M, binary *string) int {
	flag.Parse()
	if testing.Short() {
		fmt.Println("skipped with -short: these tests start decamp")
		return 0
	}
	// Under nohup, as in some CI systems, SIGHUP is ignored, also by child processes. After Notify,
	// children get the signal's default action.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	if signal.Ignored(syscall.SIGINT) { // in the background of a shell without job control; otherwise SIGINT must end the tests
		signal.Notify(make(chan os.Signal, 1), syscall.SIGINT)
	}
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
	return build(binary, strings.Join(append([]string{"decamp"}, tags...), "-"), "-ldflags=-s -w", "-tags="+strings.Join(tags, ","))
}

// BuildVersion builds decamp at the path binary, with another version.
func BuildVersion(binary, version string) error {
	return build(binary, "decamp-"+version, "-ldflags=-s -w -X github.com/decamp/decamp/internal/buildinfo.linked="+version)
}

// build builds decamp with these flags, static and stripped as in a release even if the tests are not, and copies it
// to the path binary. The test packages build it one after the other under the same name in the folder build: go build
// links it only for the first one.
func build(binary, name string, flags ...string) error {
	shared, err := repository.SharedFolder()
	if err != nil {
		return err
	}
	lock, err := os.OpenFile(filepath.Join(shared, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	defer lock.Close() // and unlock it
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	built := filepath.Join(shared, name)
	build := exec.Command("go", append(append([]string{"build"}, flags...), "-o", built, "github.com/decamp/decamp/cmd/decamp")...)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build decamp: %w: %s", err, out)
	}
	// cp, because a program that another goroutine starts could inherit the file of this process, open for writing.
	if out, err := exec.Command("cp", built, binary).CombinedOutput(); err != nil {
		return fmt.Errorf("copy decamp: %w: %s", err, out)
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
