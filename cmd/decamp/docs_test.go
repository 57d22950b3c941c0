package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// Each command line in the code blocks of the documentation has an existing command, valid flags and the right number
// of arguments.
func TestCommandsInTheDocsExist(t *testing.T) {
	pages := []string{"../../README.md"}
	err := filepath.WalkDir("../../docs", func(path string, _ fs.DirEntry, err error) error {
		generated, diagrams := filepath.Base(path) == "commands.md", filepath.Base(filepath.Dir(path)) == "design"
		if strings.HasSuffix(path, ".md") && !generated && !diagrams {
			pages = append(pages, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range commandLines(string(text)) {
			found++
			if err := parseCommand(t, line); err != nil {
				t.Errorf("%s: %s: %v", page, line, err)
			}
		}
	}
	if found < 60 {
		t.Errorf("found %d command lines, want at least 60", found)
	}
}

// commandLines returns the command lines of decamp in the code blocks of a Markdown page.
func commandLines(page string) (lines []string) {
	fenced := false
	page = strings.ReplaceAll(page, "\\\n", " ")
	for line := range strings.Lines(page) {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
			continue
		}
		if !fenced && !strings.HasPrefix(line, "    ") {
			continue
		}
		line = strings.TrimPrefix(strings.TrimSpace(line), "$ ")
		if strings.HasPrefix(line, "decamp ") {
			lines = append(lines, line)
		}
	}
	return lines
}

// parseCommand parses a command line as the program does, without running it.
func parseCommand(t *testing.T, line string) error {
	t.Helper()
	words := shellWords(line)[1:]
	root := newRoot(newTestProgram(t).program)
	cmd, rest, err := root.Find(words)
	if err != nil {
		return err
	}
	if err := cmd.ParseFlags(rest); errors.Is(err, pflag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	return cmd.ValidateArgs(cmd.Flags().Args())
}

// shellWords splits a line at blanks outside of quotes, up to a comment, a pipe or a redirection.
func shellWords(line string) (words []string) {
	var word strings.Builder
	quote, open := rune(0), false
	end := func() {
		if open {
			words = append(words, word.String())
		}
		word.Reset()
		open = false
	}
	for _, c := range line {
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(c)
		case c == '\'' || c == '"':
			quote, open = c, true
		case c == ' ':
			end()
		case !open && strings.ContainsRune("#|>&", c):
			return words
		default:
			word.WriteRune(c)
			open = true
		}
	}
	end()
	return words
}

func TestCommandLinesAreFound(t *testing.T) {
	page := "Use `decamp ls`.\n\n    decamp ls esxi://root@esx1   # comment\n\n```\n$ decamp migrate esxi://root@esx1 'a b' \\\n  --warm > out\nother\n```\ndecamp runs\n"
	lines := commandLines(page)
	if len(lines) != 2 {
		t.Fatalf("found %q", lines)
	}
	for i, want := range []string{"decamp|ls|esxi://root@esx1", "decamp|migrate|esxi://root@esx1|a b|--warm"} {
		if got := strings.Join(shellWords(lines[i]), "|"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for _, line := range []string{"decamp mirgate x", "decamp ls --bogus", "decamp ls", "decamp rehearse a b c"} {
		if parseCommand(t, line) == nil {
			t.Errorf("%s is accepted", line)
		}
	}
}
