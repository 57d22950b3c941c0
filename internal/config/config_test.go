package config

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/fault"
)

// testFlags contains the flags that the defaults in tests may set.
var testFlags = []string{"transport", "connections", "to", "server", "db", "warm"}

// writeConfig writes a config file with a mode, independent of the umask.
func writeConfig(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

const fingerprint = "AA:BB:CC:DD:EE:FF:00:11:22:33:44:55:66:77:88:99:AA:BB:CC:DD:EE:FF:00:11:22:33:44:55:66:77:88:99"

func TestFindPaths(t *testing.T) {
	for _, tt := range []struct{ xdg, home, want string }{
		{"/x", "/home/ada", "/x/decamp/config.yaml"},
		{"", "/home/ada", "/home/ada/.config/decamp/config.yaml"},
		{"x", "/home/ada", "/home/ada/.config/decamp/config.yaml"}, // relative: ignored
		{"", "", ""},
		{"", "home", ""},
	} {
		p := FindPaths(func(name string) string { return map[string]string{"XDG_CONFIG_HOME": tt.xdg, "HOME": tt.home}[name] })
		if p.User != tt.want || p.System != "/etc/decamp/config.yaml" {
			t.Errorf("%q %q: got %+v", tt.xdg, tt.home, p)
		}
	}
}

func TestUserFileHasPrecedence(t *testing.T) {
	p := Paths{filepath.Join(t.TempDir(), "system.yaml"), filepath.Join(t.TempDir(), "user.yaml")}
	writeConfig(t, p.System, "sources:\n  a: {url: 'esxi://root@sys'}\n  b: {url: 'esxi://root@b'}\ndefaults: {transport: nfc, connections: 3, db: 'postgres://d@h/d'}\n", 0o644)
	writeConfig(t, p.User, "# mine\nsources:\n  a:\n    url: esxi://esx1:8443\n    user: root\n    fingerprint: "+strings.ToLower(strings.ReplaceAll(fingerprint, ":", ""))+"\ndefaults:\n  transport: https\n  server: https://h:8470\n", 0o600)
	s, err := Load(p, testFlags)
	if err != nil {
		t.Fatal(err)
	}
	if a := s.Sources["a"]; a.URL != "esxi://root@esx1:8443" || a.Fingerprint != fingerprint || a.String() != p.User+":3" {
		t.Errorf("got source a %+v", a)
	}
	if _, both := s.Defaults["db"]; both || s.Defaults["server"].Values[0] != "https://h:8470" {
		t.Errorf("the default server of the user does not replace the database of the machine: %+v", s.Defaults)
	}
	if s.Sources["b"].URL != "esxi://root@b" || s.Defaults["transport"].Values[0] != "https" || s.Defaults["connections"].Values[0] != "3" {
		t.Errorf("got %+v", s)
	}
}

func TestMissingFilesHaveNoSettings(t *testing.T) {
	s, err := Load(Paths{filepath.Join(t.TempDir(), "none"), ""}, nil)
	if err != nil || len(s.Sources)+len(s.Targets)+len(s.Servers)+len(s.Defaults) != 0 {
		t.Errorf("got settings %+v, %v", s, err)
	}
}

func TestMistakesNameFileLineAndRemedy(t *testing.T) {
	for _, tt := range []struct {
		name, text, message, remedy string
		line                        int
	}{
		{"syntax", "sources:\n\t- x\n", "found character that cannot start any token", "indent with spaces", 2},
		{"second document", "targets: {a: 'dir:/x'}\n---\nx: 1\n", "a second document begins", "remove the line ---", 2},
		{"section", "sources: {}\nserver: {}\n", `unknown key "server"`, "did you mean servers?", 2},
		{"key", "sources:\n  a:\n    urll: esxi://root@h\n", `sources.a: unknown key "urll"`, "did you mean url?", 3},
		{"far key", "servers:\n  a: {url: 'https://h:8470', zzzzzzz: 1}\n", `unknown key "zzzzzzz"`, "valid keys: url, fingerprint", 2},
		{"password", "sources:\n  a:\n    url: esxi://root@h\n    password: sesame\n", `sources.a: unknown key "password"`, "decamp login", 4},
		{"token", "servers:\n  a:\n    url: https://h:8470\n    token: sesame\n", `unknown key "token"`, "tokenFile", 4},
		{"misspelled path", "sources:\n  a: {url: 'esxi://root@h', passwordfile: /x}\n", "unknown key", "did you mean passwordFile?", 2},
		{"password in the URL", "sources:\n  a: {url: 'esxi://root:sesame@h'}\n", "contains a password", "--password-file", 2},
		{"user of a server", "servers:\n  a: {url: 'https://ada:sesame@h:8470'}\n", "contains a user", "https://HOST:8470", 2},
		{"no URL", "sources:\n  a: {user: root}\n", "sources.a.url", "esxi://root@HOST", 2},
		{"two users", "sources:\n  a: {user: root, url: 'esxi://ada@h'}\n", "the user is in url and in user", "keep one", 2},
		{"fingerprint", "sources:\n  a: {url: 'esxi://root@h', fingerprint: AB:CD}\n", "not a SHA-256 fingerprint", "64 hexadecimal digits", 2},
		{"relative path", "sources:\n  a: {url: 'esxi://root@h', passwordFile: pw}\n", "not an absolute path", "absolute", 2},
		{"half a certificate", "servers:\n  a: {url: 'https://h', clientCert: /c}\n", "require each other", "set both", 2},
		{"target", "targets:\n  a: /srv/vm\n", "is not a destination", "dir:/FOLDER", 2},
		{"list as target", "targets:\n  a: ['dir:/x']\n", "want one value", "", 2},
		{"name", "targets:\n  'a b': dir:/x\n", `"a b" is not a name`, "letters, digits", 2},
		{"twice", "targets:\n  a: dir:/x\n  a: dir:/y\n", "first in line 2", "keep one", 3},
		{"null", "targets:\n  a:\n", "targets.a: the value is missing", "remove the key", 2},
		{"alias", "targets:\n  a: &x dir:/x\n  b: *x\n", "anchors and aliases", "write the value out", 2},
		{"flag", "defaults:\n  conections: 4\n", "no command has a flag --conections", "did you mean connections?", 2},
		{"consent", "defaults:\n  discard: true\n", "--discard has no default", "command line", 2},
		{"identity", "defaults:\n  server-fingerprint: " + fingerprint + "\n", "has no default", "in servers", 2},
		{"server and database", "defaults:\n  server: https://h:8470\n  db: postgres://d@h/d\n", "exclude each other", "keep one", 3},
		{"empty list", "defaults:\n  to: []\n", "the list is empty", "remove the key", 2},
		{"map", "defaults:\n  to: {a: b}\n", "want one value, or a list", "", 2},
		{"no mapping", "- a\n", "want keys with values", "", 1},
		{"source is text", "sources:\n  a: esxi://root@h\n", "sources.a: want keys with values", "", 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "config.yaml")
			writeConfig(t, path, tt.text, 0o600)
			_, err := Load(Paths{User: path}, testFlags)
			if !fault.Is(err, fault.Invalid) {
				t.Fatalf("got %v", err)
			}
			_, found, err := Check(Paths{User: path}, testFlags)
			if err != nil || len(found) == 0 {
				t.Fatal(found, err)
			}
			first := found[0]
			if first.Line != tt.line || first.File != path || !strings.Contains(first.Text, tt.message) || !strings.Contains(first.Remedy, tt.remedy) {
				t.Errorf("got %+v", first)
			}
			if strings.Contains(found.Err().Error()+first.Remedy, "sesame") {
				t.Error("the error contains the secret")
			}
		})
	}
}

func TestAllConfigMistakesAreReported(t *testing.T) {
	_, found := parse("f", []byte("targets:\n  b: x\nsources:\n  a: {}\nbad: 1\n"), nil)
	if len(found) != 3 || found[0].Line != 2 || found[1].Line != 4 || found[2].Line != 5 {
		t.Errorf("got findings %v", found)
	}
	if err := found.Err(); !strings.Contains(err.Error(), "f:2: targets.b") || !strings.Contains(err.Error(), "2 more: decamp config check") {
		t.Error(err)
	}
}

func TestConfigWritableByOthersIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	for mode, refused := range map[os.FileMode]bool{0o600: false, 0o644: false, 0o664: true, 0o646: true} {
		writeConfig(t, path, "targets: {a: 'dir:/x'}\n", mode)
		_, err := Load(Paths{User: path}, nil)
		if fault.Is(err, fault.Denied) != refused || refused && fault.HintOf(err) != "run: chmod go-w "+path {
			t.Errorf("mode %o: got %v (%s)", mode, err, fault.HintOf(err))
		}
	}
}

// A file of another user is refused, because that user may write it at any time.
func TestAFileOfAnotherUserIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("requires root to change the owner of a file")
	}
	path := filepath.Join(t.TempDir(), "config.yaml")
	writeConfig(t, path, "targets: {a: 'dir:/x'}\n", 0o644)
	if err := os.Chown(path, 65534, -1); err != nil {
		t.Fatal(err)
	}
	_, err := Load(Paths{User: path}, nil)
	if !fault.Is(err, fault.Denied) || !strings.Contains(err.Error(), "belongs to user 65534") || fault.HintOf(err) != "chown 0 "+path {
		t.Errorf("got %v (%s)", err, fault.HintOf(err))
	}
}

// A FIFO in place of a config file is an error and does not block.
func TestAFIFOIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(Paths{User: path}, nil); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "is not a regular file") {
		t.Error(err)
	}
}

// A service can run as another user than the owner of $HOME. It ignores a config file in a folder that it cannot
// search. In a folder that it can search, the file must be readable.
func TestUnreadableConfigFiles(t *testing.T) {
	folder, err := os.MkdirTemp("/tmp", "decamp-config-") // t.TempDir is in a folder that others cannot search
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = os.Chmod(folder, 0o755)
		_ = os.RemoveAll(folder)
	})
	path := filepath.Join(folder, "config.yaml")
	writeConfig(t, path, "targets: {a: 'dir:/x'}\n", 0)
	load := func(mode os.FileMode) error {
		if err := os.Chmod(folder, mode); err != nil {
			t.Fatal(err)
		}
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		old, _ := unix.SetfsuidRetUid(65534) // root may read every file; without root, this has no effect
		defer unix.SetfsuidRetUid(old)
		_, err := Load(Paths{User: path}, nil)
		return err
	}
	if err := load(0); err != nil {
		t.Errorf("a file in a folder that cannot be searched: %v", err)
	}
	if err := load(0o755); !fault.Is(err, fault.Denied) || !strings.Contains(fault.HintOf(err), "readable for the user that runs decamp") {
		t.Errorf("an unreadable file: %v (%s)", err, fault.HintOf(err))
	}
}

// moveFlags contains the flags of a command that migrates.
type moveFlags struct {
	*pflag.FlagSet
	transport, server, fingerprint, tokenFile, ca, db, sourcePrint, password string
	to                                                                       []string
	connections                                                              int
}

func newMoveFlags(t *testing.T, args ...string) *moveFlags {
	t.Helper()
	m := &moveFlags{FlagSet: pflag.NewFlagSet("x", pflag.ContinueOnError)}
	m.StringVar(&m.transport, "transport", "https", "")
	m.StringVar(&m.server, "server", "", "")
	m.StringVar(&m.fingerprint, "server-fingerprint", "", "")
	m.StringVar(&m.tokenFile, "token-file", "", "")
	m.StringVar(&m.ca, "server-ca", "", "")
	m.StringVar(&m.db, "db", "", "")
	m.StringVar(&m.sourcePrint, "fingerprint", "", "")
	m.StringVar(&m.password, "password-file", "", "")
	m.StringArrayVar(&m.to, "to", nil, "")
	m.IntVar(&m.connections, "connections", 8, "")
	if err := m.Parse(args); err != nil {
		t.Fatal(err)
	}
	return m
}

const settingsText = `
sources:
  lab: {url: 'esxi://root@esx1', fingerprint: '` + fingerprint + `', passwordFile: /pw}
targets:
  store: dir:/srv/vm
servers:
  prod: {url: 'https://decamp:8470', fingerprint: '` + fingerprint + `', tokenFile: /token, ca: /ca}
defaults:
  transport: nfc
  connections: 4
  server: prod
  to: [store, 'dir:/y']
`

// applySettings applies the settings of a text, and returns the flags and the arguments.
func applySettings(t *testing.T, text string, vars map[string]string, words ...string) (*moveFlags, []string, error) {
	t.Helper()
	s, found := parse("config.yaml", []byte(text), testFlags)
	if len(found) > 0 {
		t.Fatal(found)
	}
	f := newMoveFlags(t, words...)
	args := f.Args()
	err := Applier{Settings: s, Env: func(name string) string { return vars[name] }, Flags: f.FlagSet}.Apply("migrate URL VM", args)
	return f, args, err
}

func TestDefaultsAndNamesAreApplied(t *testing.T) {
	f, args, err := applySettings(t, settingsText, nil, "lab", "web01")
	if err != nil {
		t.Fatal(err)
	}
	if f.transport != "nfc" || f.connections != 4 || f.server != "https://decamp:8470" || f.fingerprint != fingerprint || f.tokenFile != "/token" ||
		strings.Join(f.to, " ") != "dir:/srv/vm dir:/y" || f.sourcePrint != fingerprint || f.password != "/pw" || strings.Join(args, " ") != "esxi://root@esx1 web01" {
		t.Errorf("got %+v %v", f, args)
	}
	if f.Changed("transport") || f.Changed("fingerprint") {
		t.Error("a default counts as given by the user")
	}
}

// The files with secrets are those of sources and servers.
func TestSecretFiles(t *testing.T) {
	s, _ := parse("config.yaml", []byte(settingsText), testFlags)
	if got := strings.Join(s.SecretFiles(), " "); got != "/pw /token" {
		t.Errorf("got %q", got)
	}
	if got := (*Settings)(nil).SecretFiles(); got != nil {
		t.Errorf("got %q without settings", got)
	}
}

func TestFlagsAndEnvironmentHavePrecedence(t *testing.T) {
	f, args, err := applySettings(t, settingsText, map[string]string{"DECAMP_PASSWORD_FILE": "/env", "DECAMP_TOKEN_FILE": "/env"},
		"--transport", "https", "--to", "dir:/z", "--fingerprint", "AA", "--server-ca", "/mine", "esxi://ada@other", "web01")
	if err != nil {
		t.Fatal(err)
	}
	if f.transport != "https" || f.sourcePrint != "AA" || f.password != "" || f.tokenFile != "" || f.ca != "/mine" || f.fingerprint != "" || strings.Join(f.to, " ") != "dir:/z" || args[0] != "esxi://ada@other" {
		t.Errorf("got %+v %v", f, args)
	}
	f, _, err = applySettings(t, settingsText, nil, "--db", "postgres://d@h/d", "lab", "web01")
	if err != nil || f.server != "" || f.db != "postgres://d@h/d" {
		t.Errorf("got the default server despite --db: %+v, %v", f, err)
	}
	f, _, err = applySettings(t, settingsText, map[string]string{"DECAMP_SERVER": "https://env:8470"}, "lab", "web01")
	if err != nil || f.server != "" || f.fingerprint != "" {
		t.Errorf("got the default server despite the environment: %+v, %v", f, err)
	}
	f, _, err = applySettings(t, strings.Replace(settingsText, "  server: prod\n", "", 1), map[string]string{"DECAMP_SERVER": "prod"}, "lab", "web01")
	if err != nil || f.server != "https://decamp:8470" || f.fingerprint != fingerprint {
		t.Errorf("a server name in the environment: got %+v, %v", f, err)
	}
}

func TestUnknownNamesHaveSuggestions(t *testing.T) {
	for _, tt := range []struct {
		words           []string
		message, remedy string
		replace, byText string
	}{
		{words: []string{"labb", "x"}, message: `no source "labb"`, remedy: "did you mean lab?"},
		{words: []string{"lab", "x", "--to", "storage"}, message: `no target "storage"`, remedy: "dir:/FOLDER"},
		{words: []string{"lab", "x", "--server", "prd"}, message: `no server "prd"`, remedy: "did you mean prod?"},
		{words: []string{"lab", "x"}, message: `config.yaml:10: defaults.connections: "many"`, remedy: "correct the value", replace: "connections: 4", byText: "connections: many"},
		{words: []string{"lab", "x"}, message: "accepts one value", replace: "transport: nfc", byText: "transport: [nfc, https]"},
	} {
		_, _, err := applySettings(t, strings.Replace(settingsText, tt.replace, tt.byText, 1), nil, tt.words...)
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), tt.message) || !strings.Contains(fault.HintOf(err), tt.remedy) {
			t.Errorf("%v: got %v (%s)", tt.words, err, fault.HintOf(err))
		}
	}
}

func TestEditorKeepsCommentsAndOrder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "config.yaml")
	e := Editor{Path: path, Flags: testFlags}
	if err := e.SetServer("prod", Server{URL: "https://h:8470", Fingerprint: fingerprint}); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Fatal(st, err)
	}
	writeConfig(t, path, "# my hosts\nsources: # all of them\n  b: {url: 'esxi://root@b'} # old\n  a: {url: 'esxi://root@a'}\n", 0o640)
	for _, err := range []error{
		e.SetServer("prod", Server{URL: "https://h:8470", TokenFile: "/t"}), e.SetDefault("server", "prod"), e.SetTarget("store", "dir:/srv"),
		e.SetSource("c", Source{URL: "esxi://root@c"}), e.SetServer("prod", Server{URL: "https://i:8470"}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := `# my hosts
sources: # all of them
  b: {url: 'esxi://root@b'} # old
  a: {url: 'esxi://root@a'}
  c:
    url: esxi://root@c
servers:
  prod:
    url: https://i:8470
defaults:
  server: prod
targets:
  store: dir:/srv
`
	if string(text) != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o640 {
		t.Error("the mode changed:", st.Mode(), err)
	}
	if err := e.RemoveServer("other"); !fault.Is(err, fault.NotFound) {
		t.Error(err)
	}
	if err := e.RemoveServer("prod"); err != nil {
		t.Fatal(err)
	}
	s, err := Load(Paths{User: path}, testFlags)
	if err != nil || len(s.Servers) != 0 || len(s.Defaults) != 0 || len(s.Sources) != 3 {
		t.Errorf("got settings %+v, %v", s, err)
	}
}

func TestEditorChangesNoFileWithMistakes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	writeConfig(t, path, "sources: [\n", 0o600)
	e := Editor{Path: path, Flags: testFlags}
	if err := e.SetDefault("server", "x"); !fault.Is(err, fault.Invalid) {
		t.Error(err)
	}
	writeConfig(t, path, "", 0o600)
	if err := e.SetServer("prod", Server{URL: "not a URL"}); !fault.Is(err, fault.Invalid) {
		t.Error(err)
	}
	if text, err := os.ReadFile(path); err != nil || len(text) != 0 {
		t.Errorf("got text %q, %v; want an empty file", text, err)
	}
}

func TestListShowsOriginsAndNoPasswords(t *testing.T) {
	s, found := parse("config.yaml", []byte(settingsText), testFlags)
	if len(found) > 0 {
		t.Fatal(found)
	}
	got := map[string]string{}
	for _, each := range s.List(func(name string) string {
		return map[string]string{"DECAMP_SERVER": "https://env:8470", "DECAMP_DB": "postgres://ada:sesame@db/d"}[name]
	}) {
		got[each.Key] = each.Value + " " + each.Origin
	}
	for key, want := range map[string]string{
		"sources.lab.url": "esxi://root@esx1 config.yaml:3", "targets.store": "dir:/srv/vm config.yaml:5", "defaults.to": "store, dir:/y config.yaml:12",
		"defaults.server": "https://env:8470 $DECAMP_SERVER", "defaults.db": "postgres://ada:xxxxx@db/d $DECAMP_DB",
	} {
		if got[key] != want {
			t.Errorf("%s: got %q, want %q", key, got[key], want)
		}
	}
}
