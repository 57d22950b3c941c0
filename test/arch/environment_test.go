package arch

import (
	"regexp"
	"strings"
	"testing"
)

var (
	startsProgram  = regexp.MustCompile(`\bexec\.Command(?:Context)?\(`)
	setEnvironment = regexp.MustCompile(`\.Env\b[^=\n]* = `)
)

// Each program that decamp starts gets an explicit environment. Otherwise it would inherit the secrets in the environment
// of decamp.
func TestProgramsGetExplicitEnvironment(t *testing.T) {
	files := 0
	for _, file := range trackedFiles(t, "*.go") {
		product := strings.HasPrefix(file, "cmd/decamp/") || strings.HasPrefix(file, "internal/")
		if !product || strings.HasSuffix(file, "_test.go") || strings.HasPrefix(file, "internal/lab/") || regexp.MustCompile(`/[a-z0-9]+test/`).MatchString(file) {
			continue
		}
		text := readFile(t, file)
		starts := len(startsProgram.FindAllString(text, -1))
		if starts == 0 {
			continue
		}
		files++
		if sets := len(setEnvironment.FindAllString(text, -1)); sets < starts {
			t.Errorf("%s starts %d programs and sets %d environments: see internal/childenv", file, starts, sets)
		}
	}
	if files < 8 {
		t.Errorf("found only %d files that start programs", files)
	}
}

// writesProgram matches a call that writes an executable file.
var writesProgram = regexp.MustCompile(`os\.WriteFile\(.*, 0o7[0-7]{2}\)`)

// Tests write programs with executable.Write, because Linux does not start a program that a process has open for writing.
// A child process of another test can inherit the open file. The tests of release/ do not run in parallel.
func TestTestsWriteProgramsWithPackageExecutable(t *testing.T) {
	for _, file := range trackedFiles(t, "*_test.go") {
		if found := writesProgram.FindString(readFile(t, file)); found != "" && !strings.HasPrefix(file, "release/") {
			t.Errorf("%s: %s: use executable.Write", file, found)
		}
	}
}
