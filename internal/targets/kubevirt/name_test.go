package kubevirt

import (
	"regexp"
	"strings"
	"testing"
)

var rfc1123 = regexp.MustCompile(`^` + label + `$`)

func TestName(t *testing.T) {
	for name, want := range map[string]string{
		"web01": "web01", "Web 01": "web-01", "a.b_c": "a-b-c", "--x--": "x", "Müller": "muller", "ﬁle²": "file2",
		"a / b": "a-b", "7": "7",
	} {
		if got := Name(name); got != want {
			t.Errorf("Name(%q) = %s, want %s", name, got, want)
		}
	}
	for _, pair := range [][2]string{
		{"日本", "中国"}, {"日本1", "中国1"}, {strings.Repeat("x", 60) + "1", strings.Repeat("x", 60) + "2"}, {"", "/"}, {"straße", "strae"},
	} {
		if a, b := Name(pair[0]), Name(pair[1]); a == b {
			t.Errorf("%q and %q have the same name %s", pair[0], pair[1], a)
		}
	}
}

func FuzzName(f *testing.F) {
	for _, seed := range []string{"", "web01", "..", "日本", "\xff\xfe", "-", "A\u0300\u0301", strings.Repeat("é-", 70), "$(reboot)", "a\nb"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		got := Name(name)
		if !rfc1123.MatchString(got) || len(got) > maxName {
			t.Errorf("Name(%q) = %q", name, got)
		}
		if disk := diskName(got, 9999); !rfc1123.MatchString(disk) {
			t.Errorf("name %q has invalid disk name %q", name, disk)
		}
		if got != Name(name) {
			t.Errorf("Name(%q) is not always %q", name, got)
		}
	})
}
