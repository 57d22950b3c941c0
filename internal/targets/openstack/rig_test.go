package openstack

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	lab "github.com/decamp/decamp/internal/lab/openstack"
	"github.com/decamp/decamp/internal/sleep"
)

// startCloud starts an emulated cloud that stops when the test ends.
func startCloud(t *testing.T, c lab.Config) *lab.Cloud {
	t.Helper()
	cloud := lab.Start(c)
	t.Cleanup(cloud.Close)
	return cloud
}

// setEnvironment sets the environment so that only the clouds.yaml of this cloud is found.
func setEnvironment(t *testing.T, cloud *lab.Cloud) {
	t.Helper()
	folder := t.TempDir()
	ca := filepath.Join(folder, "ca.pem")
	writeFile(t, ca, cloud.CA())
	writeFile(t, filepath.Join(folder, "clouds.yaml"), cloud.CloudsYAML(ca))
	for _, name := range []string{"OS_CLOUD", "OS_AUTH_URL", "OS_CACERT", "OS_REGION_NAME", "OS_INTERFACE"} {
		t.Setenv(name, "")
	}
	t.Setenv("OS_CLIENT_CONFIG_FILE", filepath.Join(folder, "clouds.yaml"))
}

func writeFile(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// noWait is an Options.Wait that returns almost at once.
func noWait(ctx context.Context, _ time.Duration) error { return sleep.For(ctx, time.Microsecond) }

// newPlatform returns a Platform at the cloud for an address such as "lab", with short waits.
func newPlatform(t *testing.T, cloud *lab.Cloud, address string) *Platform {
	t.Helper()
	setEnvironment(t, cloud)
	p, err := New(address, Options{Network: "lan", Wait: noWait})
	if err != nil {
		t.Fatal(err)
	}
	return p
}
