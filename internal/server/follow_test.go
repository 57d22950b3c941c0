package server_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/server"
	"github.com/decamp/decamp/internal/sqlitedb"
)

// Follow with revision -1 reads no older rows. The VM in the database is corrupt, so that reading it fails.
func TestFollowFromNowOnReadsNoOlderRows(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	path := filepath.Join(t.TempDir(), "fleet.db")
	r, err := fleetdb.Open(ctx, fleetdb.Config{URL: "sqlite:" + path})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	_, err = r.Plans.Add(ctx, fleetdb.Plan{Name: "p"})
	err = errors.Join(err, r.VMs.Add(ctx, []fleetdb.VM{{Key: fleetdb.Key{Plan: "p", VM: "vm-1"}}}), changeDatabase(path, `UPDATE vms SET storage = '{'`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Feed.Changes(ctx, 0); err == nil {
		t.Fatal("the corrupt VM is readable")
	}
	enough := errors.New("enough")
	done := make(chan error, 1)
	go func() {
		done <- server.Local{Database: r}.Follow(ctx, -1, func(c fleetdb.Changes) error {
			if len(c.Limits) != 1 || len(c.Plans)+len(c.VMs) > 0 {
				t.Errorf("changes %+v, want one limit", c)
			}
			return enough
		})
	}()
	for units := int64(1); ; units++ { // the first changes may precede the call of Follow
		select {
		case err := <-done:
			if !errors.Is(err, enough) {
				t.Errorf("Follow: %v", err)
			}
			return
		default:
		}
		if err := r.Limits.Set(ctx, "host:esx1/vms", units); err != nil {
			t.Fatal(err)
		}
	}
}

// changeDatabase runs a statement in the database at path. It creates no revision.
func changeDatabase(path, statement string) error {
	f, err := sqlitedb.At(path)
	if err != nil {
		return err
	}
	db, err := f.Open(sqlitedb.Options{Conns: 1})
	if err != nil {
		return err
	}
	_, err = db.Exec(statement)
	return errors.Join(err, db.Close())
}
