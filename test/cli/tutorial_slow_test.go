//go:build slow

package cli

import (
	"testing"

	"github.com/decamp/decamp/internal/lab/kube"
	"github.com/decamp/decamp/internal/lab/openstack"
	"github.com/decamp/decamp/test/guest"
)

// The commands of the tutorials that convert the guest work.
func TestTutorialsWithConversion(t *testing.T) {
	t.Parallel()
	t.Run("openstack", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, tutorialLab(guest.Image(t, guest.NoVirtio))).withFingerprint()
		cloud := openstack.Start(openstack.Config{})
		t.Cleanup(cloud.Close)
		ca := r.writeFile("ca.pem", string(cloud.CA()))
		r.env = append(r.env, "OS_CLIENT_CONFIG_FILE="+r.writeFile("clouds.yaml", string(cloud.CloudsYAML(ca))))
		page := r.openPage("tutorials/openstack", "openstack:mycloud", "openstack:lab")
		page.runNext("mkdir", "decamp doctor", "decamp migrate")
		if servers := cloud.Servers(); len(servers) != 1 {
			t.Errorf("servers %v after the migration", servers)
		} else {
			cloud.SetStatus(servers[0].ID, "SHUTOFF")
		}
		page.runNext("decamp rollback")
		if servers := cloud.Servers(); len(servers) != 0 {
			t.Errorf("servers %v after the rollback", servers)
		}
	})
	t.Run("kubevirt", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, tutorialLab(guest.Image(t, guest.NoVirtio))).withFingerprint()
		cluster := kube.Start(kube.Config{Classes: []string{"fast"}})
		t.Cleanup(cluster.Close)
		config := r.writeFile("kubeconfig", string(cluster.Kubeconfig()))
		page := r.openPage("tutorials/kubevirt", "/root/.kube/decamp", config)
		page.runNext("mkdir", "decamp doctor", "decamp migrate")
		if vms := cluster.Objects("virtualmachines"); len(vms) != 1 {
			t.Errorf("VMs %v after the migration", vms)
		}
		cluster.PowerOff("vms", "web01")
		page.runNext("decamp rollback")
		if vms := cluster.Objects("virtualmachines"); len(vms) != 0 {
			t.Errorf("VMs %v after the rollback", vms)
		}
	})
}
