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

// A program that is started without an environment of its own inherits decamp's, with its secrets.
func TestProgramsHaveEnvironmentsOfTheirOwn(t *testing.T) {
	files := 0
	for _, file := range tracked(t, "*.go") {
		product := strings.HasPrefix(file, "cmd/decamp/") || strings.HasPrefix(file, "internal/")
		if !product || strings.HasSuffix(file, "_test.go") || strings.HasPrefix(file, "internal/lab/") || regexp.MustCompile(`/[a-z0-9]+test/`).MatchString(file) {
			continue
		}
		text := read(t, file)
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
		t.Errorf("%d files start programs: are they found?", files)
	}
}

// writesProgram matches a file that is written with permission to execute it.
var writesProgram = regexp.MustCompile(`os\.WriteFile\(.*, 0o7[0-7]{2}\)`)

// Linux does not start a program while any process has it open for writing. A child process can inherit the open file. The
// tests of release/, a separate module, are not parallel.
func TestProgramsAreWrittenByPackageExecutable(t *testing.T) {
	for _, file := range tracked(t, "*_test.go") {
		if found := writesProgram.FindString(read(t, file)); found != "" && !strings.HasPrefix(file, "release/") {
			t.Errorf("%s: %s: use executable.Write", file, found)
		}
	}
}
