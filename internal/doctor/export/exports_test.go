package export

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/doctor"
)

// formatExports formats exports as exportfs accepts them, with all options.
func formatExports(exports []Export) string {
	var lines []string
	for _, e := range exports {
		lines = append(lines, fmt.Sprintf("%s(%s)", e, e.optionsWith(e.Rules)))
	}
	return strings.Join(lines, "\n")
}

func TestParseExports(t *testing.T) {
	for text, want := range map[string]string{
		"/a":                             "*:/a(ro,sync,root_squash,no_subtree_check)",
		"/a (rw)":                        "*:/a(rw,sync,root_squash,no_subtree_check)",
		"/a esx1 esx2(async)":            "esx1:/a(ro,sync,root_squash,no_subtree_check)\nesx2:/a(ro,async,root_squash,no_subtree_check)",
		"/a -rw,async b(sync) c -ro d":   "b:/a(rw,sync,root_squash,no_subtree_check)\nc:/a(rw,async,root_squash,no_subtree_check)\nd:/a(ro,async,root_squash,no_subtree_check)",
		"/a\\040b\t*(rw) # c(ro)":        "*:/a b(ro,sync,root_squash,no_subtree_check)",
		`"/a #b" 10.1.2.3/255.255.0.0`:   "10.1.0.0/16:/a #b(ro,sync,root_squash,no_subtree_check)",
		"/a \\\n  @esx(fsid=0,insecure)": "@esx:/a(ro,sync,root_squash,no_subtree_check,insecure,fsid=0)",
		"# /a *\n\n  \n":                 "",
		"/a fd00::/8(anonuid=7)":         "fd00::/8:/a(ro,sync,root_squash,no_subtree_check,anonuid=7)",
	} {
		if strings.Contains(text, "# c") {
			want = strings.Replace(want, "(ro", "(rw", 1)
		}
		got, problems := ParseExports(text, "/etc/exports")
		if formatExports(got) != want || len(problems) > 0 {
			t.Errorf("%q:\n%s\n%v, want\n%s", text, formatExports(got), problems, want)
		}
	}
}

func TestProblemsOfExports(t *testing.T) {
	for text, want := range map[string]string{
		"/a esx1 (rw)":   "a space before (rw)",
		"/a esx1(rw, x)": "no closing parenthesis",
		"a *(rw)":        "is not an absolute path",
		`"/a *(rw)`:      "a quotation mark is not closed",
		"/a *(asynch)":   `unknown option "asynch"`,
	} {
		_, problems := ParseExports(text, "/etc/exports")
		if len(problems) == 0 || !strings.Contains(problems[0].Seen, want) || problems[0].At.String() != "/etc/exports:1" || problems[0].Remedy == "" {
			t.Errorf("%q: %+v, want %q", text, problems, want)
		}
	}
}

// exportfs -v prints the clients of long paths on separate lines.
func TestParseTable(t *testing.T) {
	const text = "/srv/vm       \t10.0.0.0/24(async,wdelay,hide,no_subtree_check,sec=sys,rw,secure,no_root_squash,no_all_squash)\n" +
		"/srv/a-long-path-here\n\t\t<world>(sync,wdelay,hide,no_subtree_check,sec=sys,ro,insecure,root_squash,no_all_squash)\n"
	const want = "10.0.0.0/24:/srv/vm(rw,async,no_root_squash,no_subtree_check,wdelay,hide,sec=sys)\n" +
		"*:/srv/a-long-path-here(ro,sync,root_squash,no_subtree_check,insecure,wdelay,hide,sec=sys)"
	if got := formatExports(ParseTable(text, "exportfs -v")); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// The kernel combines the clients of one address, and omits flags that are off.
func TestParseKernel(t *testing.T) {
	got := ParseKernel("# Version 1.1\n/srv/vm\t10.0.0.0/24,*(rw,async,uuid=1:2,sec=1)\n", "x")
	if want := "10.0.0.0/24:/srv/vm(rw,async,root_squash,subtree_check,uuid=1:2,sec=1)\n*:/srv/vm(rw,async,root_squash,subtree_check,uuid=1:2,sec=1)"; formatExports(got) != want {
		t.Errorf("got\n%s\nwant\n%s", formatExports(got), want)
	}
}

func TestClientPatternsAdmitAddresses(t *testing.T) {
	for _, v := range []struct {
		client Client
		addr   string
		want   Answer
	}{
		{"*", "10.0.0.21", Yes},
		{"10.0.0.0/24", "10.0.0.21", Yes},
		{"10.0.0.0/24", "::ffff:10.0.0.21", Yes},
		{"10.0.0.0/255.255.255.0", "10.0.1.21", No},
		{"10.0.0.21", "10.0.0.21", Yes},
		{"fd00::/8", "fd12::1", Yes},
		{"@esx", "10.0.0.21", Unknown},
		{"esx1.lab.example", "10.0.0.21", Yes},
		{"esx1.lab.example", "10.0.0.22", No},
		{"esx2.lab.example", "10.0.0.22", No}, // the name has no address
		{"ESX?.Lab.*", "10.0.0.21", Yes},
		{"*.other.example", "10.0.0.21", No},
		{"*.other.example", "10.0.0.22", No}, // the address has no name
	} {
		if got := v.client.admitsAddr(t.Context(), netip.MustParseAddr(v.addr), fakeResolver{}); got != v.want {
			t.Errorf("client %s admits %s: got %d, want %d", v.client, v.addr, got, v.want)
		}
	}
}

// If several clients of an export include a host, the options of the most specific client apply.
func TestMostSpecificClientApplies(t *testing.T) {
	exports, _ := ParseExports("/a *(ro) 10.0.0.0/24(rw,async) esx1.lab.example(rw,sync)", "x")
	h := Host{"esx1", netip.MustParseAddr("10.0.0.21")}
	s := &Server{Written: exports}
	if x, may := s.exportFor(t.Context(), "/a", h, fakeResolver{}); may != Yes || x.Client != "esx1.lab.example" {
		t.Errorf("got client %v, %d", x, may)
	}
	s.Ordered = true
	if x, _ := s.exportFor(t.Context(), "/a", h, fakeResolver{}); x.Client != Everybody {
		t.Errorf("ordered: got client %v", x)
	}
}

// The live table may contain the address of a host in place of its name.
func TestLiveTableWithAddresses(t *testing.T) {
	written, _ := ParseExports("/a esx1.lab.example(rw) 10.0.0.9(rw)\n/b *", "x")
	s := &Server{Written: written, Live: ParseTable("/a\t10.0.0.21(rw)\n/a\tother.example(rw)\n/a\t10.0.0.9(ro)\n/b\t*(rw)\n", "y")}
	s.callAsWritten(t.Context(), fakeResolver{})
	want := []Client{"esx1.lab.example", "other.example", "10.0.0.9", "*"}
	for i, l := range s.Live {
		if l.Client != want[i] {
			t.Errorf("got client %s, want %s", l.Client, want[i])
		}
	}
}

// The remedy for the options of an export is a shell command. After it ran, the options have no findings.
func TestRemedyRepairsExports(t *testing.T) {
	sed, err := exec.LookPath("sed")
	if err != nil {
		t.Skip("sed is not installed")
	}
	root := t.TempDir()
	for _, dir := range []string{"etc", "proc/fs/nfsd"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(root, "etc/exports")
	before := "# head\n\"/srv/my vm\" \\\n  10.0.0.0/24(fsid=3) other(ro)\n/b *(ro,sync)\n"
	if err := os.WriteFile(file, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	o := newOptions(t, "")
	o.Root, o.Folder, o.Hosts = os.DirFS(root), "/srv/my vm", []Host{{"esx1", netip.MustParseAddr("10.0.0.21")}}
	remedy := ""
	for _, f := range doctor.Examine(t.Context(), Checks(o), doctor.Options{Short: true}) {
		if f.Code == "nfs-sync" || f.Code == "nfs-root" || f.Code == "nfs-access" {
			if f.Status == doctor.OK || remedy != "" && f.Remedy != remedy {
				t.Errorf("%s: %v, remedy %q", f.Code, f.Status, f.Remedy)
			}
			remedy = f.Remedy
		}
	}
	command, _, _ := strings.Cut(strings.Replace(remedy, "/etc/exports", file, 1), " && ")
	if out, err := exec.Command("sh", "-c", strings.Replace(command, "sed", sed, 1)).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", command, err, out)
	}
	after, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want := "# head\n\"/srv/my vm\" 10.0.0.0/24(rw,async,no_root_squash,no_subtree_check,fsid=3) other(ro,sync,root_squash,no_subtree_check)\n/b *(ro,sync)\n"
	if string(after) != want {
		t.Errorf("after %s\n%s\nwant\n%s", command, after, want)
	}
	for _, f := range doctor.Examine(t.Context(), Checks(o), doctor.Options{Short: true}) {
		if f.Status != doctor.OK && f.Code != "nfs-server" && f.Code != "nfs-mount" {
			t.Errorf("got finding %+v after the remedy", f)
		}
	}
}

func TestGaneshaConfiguration(t *testing.T) {
	const text = `EXPORT_DEFAULTS { Squash = All; }
EXPORT { Path = /a; Access_Type = RO; CLIENT { Clients = 10.0.0.1, "@g"; Access_Type = RW; Squash = none; Anonymous_Uid = -2; } }
export{path="/b";access_type=rw;protocols=NFSv4}
EXPORT { Path = /c; Access_Type = MDONLY; PrivilegedPort = true; }`
	g := ParseGanesha(text, "/g", func(string, string) []namedText { return nil })
	want := "10.0.0.1:/a(rw,sync,no_root_squash,no_subtree_check,insecure)\n@g:/a(rw,sync,no_root_squash,no_subtree_check,insecure)\n" +
		"*:/a(ro,sync,root_squash,no_subtree_check,all_squash,insecure)"
	if formatExports(g.Exports) != want || len(g.NoV3) != 1 || g.NoV3[0].Path != "/b" {
		t.Errorf("got exports\n%s\nwithout NFS version 3 %v", formatExports(g.Exports), g.NoV3)
	}
	if len(g.Problems) != 1 || g.Problems[0].At.First != 3 { // the missing semicolon
		t.Errorf("got problems %+v", g.Problems)
	}
}

// The parser limits files that include each other.
func TestRecursiveIncludesAreLimited(t *testing.T) {
	n := 0
	g := ParseGanesha("%include a\n%include a\n", "/g", func(string, string) []namedText {
		n++
		return []namedText{{"a", "%include a\n%include \"a\"\nEXPORT { Path = /x; Access_Type = RW; }"}}
	})
	if n > 2*maxFiles || len(g.Problems) == 0 {
		t.Errorf("got %d files and %d problems", n, len(g.Problems))
	}
}

func FuzzParseExports(f *testing.F) {
	for _, d := range []string{"debian/etc/exports", "rhel/etc/exports.d/esx.exports", "suse/etc/exports", "ubuntu/etc/exports"} {
		text, err := os.ReadFile(filepath.Join("testdata", d))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Fuzz(func(t *testing.T, text string) {
		exports, _ := ParseExports(text, "/x")
		for _, e := range exports {
			if !strings.HasPrefix(e.Path, "/") || e.Client == "" || e.At.First < 1 || e.At.Last < e.At.First {
				t.Fatalf("got export %+v", e)
			}
			e.Client.admitsAddr(context.Background(), netip.MustParseAddr("10.0.0.21"), fakeResolver{})
		}
		ParseTable(text, "/x")
		ParseKernel(text, "/x")
	})
}

func FuzzParseGanesha(f *testing.F) {
	text, err := os.ReadFile("testdata/ganesha/etc/ganesha/ganesha.conf")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(text))
	f.Add("a{b=c;{}}%include x")
	f.Fuzz(func(t *testing.T, text string) {
		g := ParseGanesha(text, "/x", func(string, string) []namedText { return []namedText{{"/y", text}} })
		for _, e := range g.Exports {
			if e.Path == "" || e.At.First < 1 {
				t.Fatalf("got export %+v", e)
			}
		}
	})
}

func FuzzReply(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x01\x00\x00\x00\x01" + strings.Repeat("\x00", 16) + "\x00\x00\x00\x01\x00\x00\x00\x02/a\x00\x00" + strings.Repeat("\x00", 8)))
	f.Fuzz(func(t *testing.T, reply []byte) {
		d, err := decodeReply(reply, 1)
		if err != nil {
			return
		}
		list, _ := decodeExports(d)
		if len(list) > len(reply) {
			t.Fatalf("got %d exports of %d bytes", len(list), len(reply))
		}
	})
}
