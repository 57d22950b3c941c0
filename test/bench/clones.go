package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"os"
	"time"

	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/inventory"
)

// clonesJob is the input of childClones: a host clones a disk to an NFS export, as an
// administrator does manually.
type clonesJob struct {
	Lab    labFacts `json:"lab"`    // emulated host
	VM     string   `json:"vm"`     // VM whose first disk is cloned
	Server string   `json:"server"` // address of the NFS server for the host
	Path   string   `json:"path"`   // exported path
}

// cloneLook is the interval of status requests during a clone. decamp itself uses a
// longer interval, because its copies take hours.
const cloneLook = 10 * time.Millisecond

// childClones measures one clone, from the request to the end of the host's task.
func childClones(ctx context.Context, args []string) (err error) {
	var job clonesJob
	if err := json.Unmarshal([]byte(args[0]), &job); err != nil {
		return err
	}
	host, err := esx.Dial(ctx, esx.Config{
		URL:         &url.URL{Scheme: "esxi", Host: job.Lab.Addr, User: url.User(job.Lab.User)},
		Password:    func(context.Context) (esx.Secret, error) { return esx.Secret(job.Lab.Password), nil },
		Fingerprint: job.Lab.Fingerprint,
		// The session polls the task with this timer.
		After: func(time.Duration) <-chan time.Time { return time.After(cloneLook) },
	})
	if err != nil {
		return err
	}
	defer host.Close()
	vm, err := host.VM(ctx, job.VM)
	if err != nil {
		return err
	}
	nas := esx.NAS{Server: job.Server, Path: job.Path, Name: "land"}
	name, _, err := host.MountNAS(ctx, vm.Host, nas)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, host.UnmountNAS(context.WithoutCancel(ctx), vm.Host, nas)) }()
	t, err := timeWork(func() error {
		return host.CopyDisk(ctx, esx.DiskCopy{From: vm.Disks[0].Path, To: inventory.Path{Datastore: name, File: vm.Name + ".vmdk"}})
	})
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(t)
}
