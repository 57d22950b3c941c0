package postgres

import (
	"context"
	"net"
	"os/exec"
	"testing"
	"time"
)

func TestDataSurvivesACrash(t *testing.T) {
	s := Start(t)
	query := func(sql string) (string, error) {
		out, err := exec.Command("psql", "-X", "-A", "-t", "-d", s.URL(), "-c", sql).CombinedOutput()
		return string(out), err
	}
	if out, err := query("create table t (n int); insert into t values (42)"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	s.Kill()
	if c, err := net.Dial("tcp", s.Addr()); err == nil {
		c.Close()
		t.Error("a killed server accepts connections")
	}
	s.Restart()
	if out, err := query("select n from t"); err != nil || out != "42\n" {
		t.Errorf("after a crash and a restart: %q, %v", out, err)
	}
}

func TestSuspendAndContinue(t *testing.T) {
	s := Start(t)
	s.Suspend()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "psql", "-X", "-d", s.URL(), "-c", "select 1").CombinedOutput(); err == nil {
		t.Errorf("a suspended server answers %s", out)
	}
	s.Continue()
	if out, err := exec.Command("psql", "-X", "-d", s.URL(), "-c", "select 1").CombinedOutput(); err != nil {
		t.Errorf("after Continue: %v: %s", err, out)
	}
}
