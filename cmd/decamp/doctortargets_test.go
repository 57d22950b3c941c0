package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/lab/kube"
	"github.com/decamp/decamp/internal/lab/openstack"
	"github.com/decamp/decamp/internal/lab/pve"
)

// told are the findings of places that a doctor without a source told, "status code", each with its words.
func (r *rig) told(to string, more ...string) map[string]string {
	r.t.Helper()
	r.out.Reset()
	code := r.run(r.t.Context(), append([]string{"doctor", "--short", "--json", "--to", to, "--staging", r.t.TempDir(), "--state", r.assembler.State}, more...))
	var said diagnosisJSON
	if err := json.Unmarshal(r.out.Bytes(), &said); err != nil { // which takes one object
		r.t.Fatalf("%v: %s%s", err, r.out, r.stderr())
	}
	if (code != 0) != (said.Error != nil) {
		r.t.Errorf("exit code %d, and an error %+v", code, said.Error)
	}
	told, failed := map[string]string{}, false
	for _, f := range said.Findings {
		if !strings.HasPrefix(f.Code, "target-") {
			continue
		}
		if f.Status != "ok" && (f.Remedy == "" || f.Want == "") {
			r.t.Errorf("half a finding: %+v", f)
		}
		failed = failed || f.Status == "failure"
		told[f.Status+" "+f.Code] += f.On + ": " + f.Found + " " + f.Remedy + "\n"
	}
	if failed && code != 6 {
		r.t.Errorf("exit code %d: %s", code, r.out)
	}
	return told
}

// wants are lines "status code: words" that have to be told, and no others that are not ok.
func wants(t *testing.T, told map[string]string, lines ...string) {
	t.Helper()
	expected := map[string]bool{}
	for _, line := range lines {
		head, words, _ := strings.Cut(line, ": ")
		expected[head] = true
		if !strings.Contains(told[head], words) {
			t.Errorf("%s does not say %q:\n%v", head, words, told)
		}
	}
	for head := range told {
		if !strings.HasPrefix(head, "ok ") && !expected[head] {
			t.Errorf("told besides: %s: %s", head, told[head])
		}
	}
}

func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// proxmoxNode starts a Proxmox, and returns the --to that names it.
func proxmoxNode(t *testing.T, config pve.Config) (s *pve.Server, to string) {
	t.Helper()
	config.Dir = t.TempDir()
	s, err := pve.Start(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s, "proxmox:" + s.URL() + "/pve1?token=" + writeFile(t, "token", s.Token()) + "&fingerprint=" + s.Fingerprint()
}

func TestDoctorOfProxmox(t *testing.T) {
	r := newRig(t)
	s, to := proxmoxNode(t, pve.Config{})
	wants(t, r.told(to), "ok target-login: node pve1: online", "ok target-features: Proxmox VE 8.4", "ok target-storage: disks: storage local-lvm is of type lvmthin",
		"ok target-storage: uploads: storage local ", "ok target-network: the bridge exists", "ok target-privilege: all privileges", "ok target-clock: from the local clock")

	names := writeFile(t, "map.yaml", "networks: {prod: vmbr9, 'dv-*': 'br-*'}\nstorages: {ssd1: nvme, ssd2: local}\n")
	wants(t, r.told(to, "--map", names), "failure target-network: network prod: node pve1 has no bridge vmbr9",
		"failure target-storage: has no storage nvme that the token may use; it may use: local, local-lvm", "ok target-storage: storage local is of type dir")

	wrong := strings.Replace(to, "token=", "token="+writeFile(t, "wrong", "root@pam!decamp=99999999-2222-3333-4444-555555555555")+"&was=", 1)
	wrong, _, _ = strings.Cut(wrong, "&was=")
	wants(t, r.told(wrong+"&fingerprint="+s.Fingerprint()), "failure target-login: token")
	wants(t, r.told(strings.Replace(to, s.Fingerprint(), strings.Repeat("AA:", 31)+"AA", 1)), "failure target-login: has another fingerprint")
	wants(t, r.told(strings.Replace(to, "/pve1?", "/pve7?", 1)), "failure target-login: has no node pve7; existing nodes: pve1", "ok target-login: the API is reachable")
	s.Close()
	wants(t, r.told(to), "failure target-login: systemctl status pveproxy")
}

func TestDoctorOfAProxmoxThatIsNotRight(t *testing.T) {
	r := newRig(t)
	_, to := proxmoxNode(t, pve.Config{Skew: time.Hour, Version: "8.1.0"})
	wants(t, r.told(to), "warning target-clock: check both: timedatectl", "failure target-features: Proxmox VE 8.1.0 does not accept uploads")
	_, to = proxmoxNode(t, pve.Config{Tokens: []pve.Token{{User: "mover@pve", ID: "t", Secret: "s3cret-0001", ACL: pve.ACL{
		"/vms": {"VM.Audit"}, "/storage": {"Datastore.Audit"}, "/nodes": {"Sys.Audit"}, "/sdn": {"SDN.Use"},
	}}}})
	wants(t, r.told(to), "failure target-privilege: VM.Allocate, VM.Config.Disk", "failure target-privilege: pveum acl modify /vms")
}

func TestDoctorOfOpenStack(t *testing.T) {
	r := newRig(t)
	reach := func(c *openstack.Cloud, file string) {
		t.Setenv("OS_CLIENT_CONFIG_FILE", writeFile(t, "clouds.yaml", file))
		t.Setenv("OS_CLOUD", "")
	}
	c := openstack.Start(openstack.Config{})
	t.Cleanup(c.Close)
	file := string(c.CloudsYAML(writeFile(t, "ca.pem", string(c.CA()))))
	reach(c, file)
	wants(t, r.told("openstack:lab?network=lan"), "ok target-login: Keystone accepts the credentials", "ok target-storage: quota of volumes", "ok target-network: the network exists", "ok target-privilege: a role with more than read access")
	wants(t, r.told("openstack:lab?network=moon&volumeType=gold&flavor=huge&availabilityZone=mars"), "failure target-network: OpenStack has no network moon",
		"failure target-storage: volume type gold does not exist", "failure target-features: flavor huge does not exist", "failure target-features: availability zone mars does not exist")
	reach(c, strings.ReplaceAll(file, openstack.Password, "wrong"))
	wants(t, r.told("openstack:lab?network=lan"), "failure target-login: token issue")
	reach(c, file)
	c.Close()
	began := time.Now()
	wants(t, r.told("openstack:lab?network=lan"), "failure target-login: lab")
	if took := time.Since(began); took > time.Minute { // two minutes is how long a move waits for who does not answer
		t.Errorf("it took %v to see that nobody answers", took)
	}

	only := openstack.Start(openstack.Config{Roles: []string{"reader"}})
	t.Cleanup(only.Close)
	reach(only, string(only.CloudsYAML(writeFile(t, "ca.pem", string(only.CA())))))
	wants(t, r.told("openstack:lab?network=lan"), "failure target-privilege: which does not permit changes")
}

func TestDoctorOfKubeVirt(t *testing.T) {
	r := newRig(t)
	at := func(c kube.Config) (*kube.Cluster, string) {
		cluster := kube.Start(c)
		t.Cleanup(cluster.Close)
		return cluster, "kubevirt:" + t.TempDir() + "?namespace=vms&storageClass=fast&kubeconfig=" + writeFile(t, "kubeconfig", string(cluster.Kubeconfig()))
	}
	cluster, to := at(kube.Config{Classes: []string{"fast"}})
	wants(t, r.told(to), "ok target-login: accepts the credentials", "ok target-features: CDI", "ok target-storage: storage class fast", "ok target-storage: upload proxy: reachable", "ok target-privilege: has the privileges to create and remove VMs")
	wrong := writeFile(t, "wrong", string(cluster.KubeconfigWith("other")))
	before, _, _ := strings.Cut(to, "&kubeconfig=")
	wants(t, r.told(before+"&kubeconfig="+wrong), "failure target-login: ")
	cluster.Close()
	wants(t, r.told(to), "failure target-login: ")

	_, to = at(kube.Config{NoCDI: true, Denied: map[string]bool{"create virtualmachines": true}})
	if told := r.told(to); told["failure target-features"] == "" || told["failure target-storage"] == "" || told["failure target-privilege"] != "" {
		t.Errorf("rights are told of where what they are of is not there: %v", told)
	}
	_, to = at(kube.Config{Classes: []string{"fast"}, Denied: map[string]bool{"create virtualmachines": true}})
	wants(t, r.told(to), "failure target-privilege: the account may not create virtualmachines")
}

// A folder is no place that is logged in to, nor is libvirt that nobody runs.
func TestDoctorOfOtherPlaces(t *testing.T) {
	r := newRig(t)
	if told := r.told("kubevirt:" + t.TempDir()); len(told) > 0 {
		t.Errorf("of manifests: %v", told)
	}
	wants(t, r.told("libvirt:qemu:///system?socket="+filepath.Join(t.TempDir(), "none")), "failure target-login: systemctl start libvirtd")
}
