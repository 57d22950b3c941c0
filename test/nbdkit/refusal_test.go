package nbdkit

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/decamp/decamp/internal/nfcplugin"
)

// Everything that is wrong ends nbdkit with one line, before a client connects.
func TestWrongParametersAreRefused(t *testing.T) {
	t.Parallel()
	cfg := config(16)
	cfg.VMs[0].Disks = append(cfg.VMs[0].Disks, cfg.VMs[0].Disks[0])
	r := newRig(t, cfg)
	wrong := strings.Repeat("AB:", 19) + "AB"
	for _, v := range []struct {
		parameters []string
		words      []string
	}{
		{r.parameters("thumprint=1"), []string{`"thumprint" is unknown`, "did you mean thumbprint=", "nfchostport"}},
		{r.parameters("libdir=/opt"), []string{`"libdir" is unknown`, "connections"}},
		{r.parameters("server="), []string{"server= is required"}},
		{r.parameters("vm="), []string{"vm= is required"}},
		{r.parameters("file="), []string{"file= is required"}},
		{r.parameters("password="), []string{"password=+FILE or cookie=+FILE is required"}},
		{r.parameters("vm=web01"), []string{"vm=moref=vm-123"}},
		{r.parameters("file=web01.vmdk"), []string{"[datastore] folder/file"}},
		{r.parameters("insecure=maybe"), []string{"insecure=", "neither true nor false"}},
		{r.parameters("thumbprint=AB:CD"), []string{"thumbprint=", "SHA-1 or SHA-256"}},
		{r.parameters("port=99999"), []string{"port=", "1 to 65535"}},
		{r.parameters("connections=17"), []string{"1 to 16"}},
		{r.parameters("transport=san"), []string{"neither nfc nor https"}},
		{append(r.parameters(), "user=eve"), []string{"user= is given twice"}},
		{r.parameters("password=+/nonexistent"), []string{"/nonexistent"}},

		{r.parameters("vm=moref=vm-999"), []string{"vm=moref=vm-999", "no VM"}},
		{r.parameters("file=[datastore1] web02/web02.vmdk"), []string{"web02.vmdk is not a disk of the VM web01", r.vm.Disks[0].Path.String(), r.vm.Disks[1].Path.String()}},
		{r.parameters("thumbprint=" + wrong), []string{wrong + " is required", r.thumbprint() + " is shown"}},
		{r.parameters("thumbprint=", "insecure=false"), []string{"is not trusted", "thumbprint=" + r.thumbprint()}},
		{r.parameters("server=host.invalid"), []string{"host.invalid"}},
		{r.parameters("port=1"), []string{":1", "refused"}},
		{r.parameters("cookie=ended", "password="), []string{"the session of cookie= has ended"}},
		{r.parameters("nfchostport=1"), []string{":1"}},
	} {
		r.refused(v.parameters, v.words...)
	}
	background := exec.Command("nbdkit", append([]string{"-U", r.path("socket"), plugin}, r.parameters("conections=1")...)...)
	if out, err := background.CombinedOutput(); err == nil || !strings.Contains(string(out), "did you mean connections=?") {
		t.Errorf("in the background: %v: %s", err, out)
	}
	before := r.lab.Stats().SOAP["Login"]
	r.refused(r.parameters("password=+"+r.write("wrong", "wrong")), "user "+r.lab.User(), "check user= and password=")
	if logins := r.lab.Stats().SOAP["Login"] - before; logins != 1 {
		t.Errorf("a wrong password was sent %d times", logins)
	}
	if open := r.lab.Stats().NFC.SessionsOpen; open != 0 {
		t.Errorf("%d sessions are open", open)
	}
}

// Each way to identify the server works, and insecure=true alone warns once.
func TestServerIsIdentified(t *testing.T) {
	t.Parallel()
	r := newRig(t, config(16))
	known := r.path("known.json")
	for _, v := range []struct {
		parameters []string
		printed    string
	}{
		{r.parameters(), ""},
		{r.parameters("thumbprint=" + strings.ToLower(r.lab.Fingerprint())), ""},
		{r.parameters("thumbprint=", "known-hosts="+known), ""}, // pins
		{r.parameters("thumbprint=", "known-hosts="+known, "insecure=false"), ""},
		{r.parameters("thumbprint="), "nbdkit: error: warning: the certificate of 127.0.0.1 is not verified; set thumbprint=" + r.thumbprint()},
	} {
		s := r.start(r.virtV2V(v.parameters)...)
		r.run("nbdinfo", "--size", r.uri())
		if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		s.wait()
		if out := s.output(); !strings.HasPrefix(out, v.printed) || strings.Count(out, "\n") > 1 || v.printed == "" && out != "" {
			t.Errorf("%v printed: %s", v.parameters, out)
		}
		_ = os.Remove(r.path("pid"))
		_ = os.Remove(r.path("socket"))
	}
	text, err := os.ReadFile(known)
	if err != nil || !strings.Contains(string(text), strings.ToUpper(r.lab.Fingerprint())) {
		t.Fatalf("known hosts: %s, %v", text, err)
	}
	other := strings.Repeat("00:", 31) + "00"
	r.write("known.json", strings.ReplaceAll(string(text), r.lab.Fingerprint(), other))
	r.refused(r.parameters("thumbprint=", "known-hosts="+known), "changed", known, r.lab.Fingerprint())
}

// The session of a cookie is used, and stays open.
func TestCookieIsUsedAndNotLoggedOut(t *testing.T) {
	t.Parallel()
	r := newRig(t, config(16))
	owner := r.login()
	cookie, err := owner.Cookie(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	before := r.lab.Stats().SOAP
	s := r.start(r.virtV2V(r.parameters("cookie=+"+r.write("cookie", cookie), "password="))...)
	r.copied(r.disk())
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	s.wait()
	after := r.lab.Stats().SOAP
	if after["Login"] != before["Login"] || after["Logout"] != before["Logout"] {
		t.Errorf("before %v, after %v", before, after)
	}
	if _, err := owner.BareVM(t.Context(), r.vm.Ref); err != nil {
		t.Error(err)
	}
	if now := r.lab.Stats().SOAP["Login"]; now != before["Login"] {
		t.Error("the owner of the cookie had to log in again")
	}
}

// virt-v2v probes the plugin without parameters; the help lists each of them.
func TestPluginDescribesItself(t *testing.T) {
	t.Parallel()
	r := &rig{t: t}
	dump := r.run("nbdkit", plugin, "--dump-plugin")
	for _, line := range []string{"name=nfc", "version=1.2.3", "thread_model=parallel", "errno_is_preserved=1", "nfc_transports=nfc,https"} {
		if !strings.Contains(dump, line+"\n") {
			t.Errorf("%s is not in:\n%s", line, dump)
		}
	}
	if out := r.run("nbdkit", plugin, "--version"); !strings.Contains(out, "nfc 1.2.3") {
		t.Error(out)
	}
	help := r.run("nbdkit", plugin, "--help")
	for _, name := range nfcplugin.ParameterNames() {
		if !strings.Contains(help, "\n"+name+"=") {
			t.Errorf("the help lacks %s=", name)
		}
	}
}
