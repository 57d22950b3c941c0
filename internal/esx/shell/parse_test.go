package shell

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/esx"
)

func TestStatesOfJobs(t *testing.T) {
	for text, want := range map[string]state{
		"none\n":                            {},
		"begun\n0\n":                        {kind: begun},
		"running\n5\nls a\nlog":             {kind: running, command: "ls a", log: []byte("log")},
		"exit 3\n7\necho\n\n\n\nbad\n":      {kind: exited, status: 3, command: "echo\n\n", log: []byte("\nbad\n")},
		"dead\n      2 \nx\n\rClone: 1% do": {kind: dead, command: "x", log: []byte("\rClone: 1% do")},
	} {
		got, err := parseState([]byte(text))
		if err != nil || fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
			t.Errorf("%q: %+v, %v; want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "alive\n", "exit\n", "exit 256\n1\n", "exit -1\n1\n", "running\n", "running\n9\nls", "running\n-1\nls"} {
		if got, err := parseState([]byte(text)); err == nil {
			t.Errorf("%q: %+v", text, got)
		}
	}
}

func TestProgressOfClones(t *testing.T) {
	for log, want := range map[string]int{
		"": -1, "Cloning disk 'x'...\n": -1, "\rClone: 5% done.": 5, "\rClone: 5% done.\rClone: 6% do": 5, "ne: 99% done.": -1,
		"\rClone: 100% done.\n": 100, "\rClone: 7% done.\rClone: 999% done.": 7, "\rClone: 7% done.\rClone: -1% done.": 7,
		"\rClone: 100% done.Failed to clone disk: No such device or address (393225).\n": 100, "% done.": -1, "Clone: % done.": -1,
	} {
		got, ok := clonePercent([]byte(log))
		if !ok {
			got = -1
		}
		if got != want {
			t.Errorf("%q: %d, want %d", log, got, want)
		}
	}
}

func TestFailuresOfClones(t *testing.T) {
	for log, want := range map[string]string{
		"": "it printed no message",
		"Destination disk format: VMFS thin-provisioned\nCloning disk 'a'...\n\rClone: 3% done.\rClone: 100% done.Failed to clone disk: No such device or address (393225).\n": "Failed to clone disk: No such device or address (393225).",
		"\rClone: 3% done.\nFailed to clone disk: one\nand two\n": "Failed to clone disk: one; and two",
	} {
		if got := cloneFailure([]byte(log)); got != want {
			t.Errorf("%q: %q, want %q", log, got, want)
		}
	}
}

const nasTable = `Volume Name           Host             Share                           Accessible  Mounted  Read-Only
--------------------  ---------------  ------------------------------  ----------  -------  ---------
landing               10.0.0.5         /decamp                               true     true      false
a name with blanks    nas.example.com  /vol/füchse                           true     true      false
`

func TestTablesOfNFS(t *testing.T) {
	list, err := parseNAS([]byte(nasTable))
	want := []esx.NAS{{Server: "10.0.0.5", Path: "/decamp", Name: "landing"}, {Server: "nas.example.com", Path: "/vol/füchse", Name: "a name with blanks"}}
	if err != nil || !slices.Equal(list, want) {
		t.Errorf("%+v, %v", list, err)
	}
	head, _, _ := strings.Cut(nasTable, "landing")
	for _, text := range []string{"", "\n", head} {
		if list, err := parseNAS([]byte(text)); len(list) > 0 || err != nil {
			t.Errorf("%q: %v, %v", text, list, err)
		}
	}
	if list, err := parseNAS([]byte("Something  Else\n---------  ----\n")); err == nil {
		t.Errorf("another table: %v", list)
	}
}

func TestFindSum(t *testing.T) {
	const md5 = "0bee89b07a248e27c83fc3d5951213c1"
	for text, want := range map[string]string{
		md5 + "  /a file\n": md5, `\` + md5 + "  /a\\nfile\n": md5, "MD5(/a= b)= " + md5 + "\n": md5, "MD5(" + md5 + ")= " + md5: md5, md5: md5,
		"": "", md5[:31]: "", "MD5(x)= " + md5 + "00": "", "md5sum: can't open 'x': No such file or directory\n": "",
	} {
		if got, err := findSum([]byte(text), 16); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
}

func FuzzNAS(f *testing.F) {
	f.Add([]byte(nasTable))
	f.Add([]byte("Volume Name\n---\n"))
	f.Add([]byte("Host  Share  Volume Name\n----  -----  -----------\nx"))
	f.Fuzz(func(t *testing.T, text []byte) {
		list, err := parseNAS(text)
		if lines := strings.Count(string(text), "\n"); err == nil && len(list) > lines {
			t.Errorf("%q: %d entries from %d lines", text, len(list), lines)
		}
		for _, n := range list {
			if strings.TrimSpace(n.Name) != n.Name || strings.Contains(n.Name+n.Server+n.Path, "\n") {
				t.Errorf("%q: %+v", text, n)
			}
		}
	})
}

func FuzzSum(f *testing.F) {
	f.Add([]byte("0bee89b07a248e27c83fc3d5951213c1  -"))
	f.Add([]byte("MD5(x)= 0bee89b07a248e27c83fc3d5951213c1\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		sum, err := findSum(text, 16)
		if err == nil && (len(sum) != 32 || !strings.Contains(strings.ToLower(string(text)), sum)) {
			t.Errorf("%q: %q", text, sum)
		}
	})
}

func FuzzState(f *testing.F) {
	for _, s := range []string{"none\n", "begun\n0\n", "running\n5\nls a\nlog", "exit 3\n8\necho\n\n\n\nbad\n", "dead\n0\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		st, err := parseState(text)
		if err != nil {
			return
		}
		if st.status < 0 || st.status > maxStatus || st.kind != exited && st.status != 0 {
			t.Errorf("%q: status %d", text, st.status)
		}
		if len(st.command)+len(st.log) > len(text) || !strings.HasSuffix(string(text), string(st.log)) {
			t.Errorf("%q: %+v", text, st)
		}
	})
}

func FuzzClone(f *testing.F) {
	for _, s := range []string{"", "\rClone: 5% done.\rClone: 6% do", "Clone: 100% done.Failed to clone disk: x (1)", "Clone: Clone: 1% done.% done."} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, log []byte) {
		percent, ok := clonePercent(log)
		if percent < 0 || percent > 100 || !ok && percent != 0 {
			t.Errorf("%q: %d", log, percent)
		}
		// the last complete percentage counts, regardless of the text before and after it
		if p, ok := clonePercent(append(log, "\rClone: 42% done.\rClone: 4"...)); p != 42 || !ok {
			t.Errorf("%q: %d, %v", log, p, ok)
		}
		if message := cloneFailure(log); message == "" || strings.ContainsAny(message, "\r\n") {
			t.Errorf("%q: message %q", log, message)
		}
	})
}

func FuzzPins(f *testing.F) {
	f.Add("SHA256:" + strings.Repeat("A", 43) + "=")
	f.Add("SHA256: MD5:1")
	f.Fuzz(func(t *testing.T, text string) {
		all, err := parsePins(text)
		if (err == nil) != (len(all) > 0) {
			t.Fatalf("%q: %v, %v", text, all, err)
		}
		for _, p := range all {
			if len(p) != fingerprintLen || strings.ContainsAny(p, " \n=") {
				t.Errorf("%q: %q", text, p)
			}
		}
	})
}
