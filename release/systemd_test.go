//go:build slow

package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"testing"
	"time"
)

// These tests boot systemd as PID 1 in a container of systemd-nspawn, without a network, and run the installed units. The
// root has no /etc/hosts and no DNS: nothing may depend on the name localhost.

// runUnderSystemd boots a root and runs a shell script in it as root, after the target multi-user. It returns the output
// of the script.
func runUnderSystemd(t *testing.T, root, script string) string {
	t.Helper()
	const unit = `[Unit]
After=multi-user.target
[Service]
Type=oneshot
Environment=HOME=/root
ExecStart=/bin/sh -ec '. /root/script >/root/output 2>&1'
ExecStopPost=/bin/sh -c 'exec systemctl --no-block exit $EXIT_STATUS'
`
	const target = "[Unit]\nRequires=multi-user.target\nWants=script.service\nAllowIsolate=yes\n"
	units := filepath.Join(root, "etc/systemd/system")
	err := errors.Join(
		os.WriteFile(filepath.Join(root, "root/script"), []byte(functions+script), 0o600),
		os.WriteFile(filepath.Join(units, "script.service"), []byte(unit), 0o644),
		os.WriteFile(filepath.Join(units, "script.target"), []byte(target), 0o644),
		os.RemoveAll(filepath.Join(root, "etc/hosts")), os.RemoveAll(filepath.Join(root, "etc/resolv.conf")),
		os.WriteFile(filepath.Join(root, "etc/machine-id"), nil, 0o444),
	)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	// If unshare is killed, its namespace ends, and the container with it.
	cmd := exec.CommandContext(ctx, "unshare", "--mount", "--pid", "--mount-proc", "--fork", "--kill-child",
		"systemd-nspawn", "--quiet", "--directory", root, "--private-network", "--resolv-conf=off", "--register=no", "--keep-unit",
		"--console=read-only", "/lib/systemd/systemd", "--show-status=1", "--unit=script.target")
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	console, err := cmd.CombinedOutput()
	out, readErr := os.ReadFile(filepath.Join(root, "root/output"))
	if readErr != nil {
		t.Fatalf("%v, %v\n%s", err, readErr, console)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// functions are shell functions of the scripts. start_lab starts an emulator that is slow enough that a copy takes several
// seconds, and writes an access file for it.
const functions = `set -e
await() {
	tries=0
	until "$@" >/tmp/await 2>&1; do
		tries=$((tries + 1))
		[ $tries -lt 1500 ] || { echo "never: $*"; cat /tmp/await; journalctl --no-pager -u 'decamp*' | tail -50; exit 1; }
		sleep 0.2
	done
}
start_lab() {
	decamp-lab --conn-rate 10M >/tmp/lab.out 2>&1 &
	await grep -q 'Try, in another terminal' /tmp/lab.out
	password=$(sed -n 's/^ *password *in //p' /tmp/lab.out)
	fingerprint=$(sed -n 's/^ *SHA-256 *//p' /tmp/lab.out)
	install -m 600 "$password" /etc/decamp/lab.password
	cat >/tmp/access.yaml <<-END
	version: 1
	credentials:
	  lab: {url: "esxi://root@127.0.0.1:8443", fingerprint: "$fingerprint", roles: [operate]}
	END
	install -m 600 /tmp/access.yaml /etc/credstore/decamp.access.yaml
}
# drop_in UNIT NAME adds the standard input to a unit.
drop_in() {
	mkdir -p /etc/systemd/system/$1.service.d
	cat >/etc/systemd/system/$1.service.d/$2.conf
	systemctl daemon-reload
}
# remember_server adds a token, and the server with its certificate under the name here.
remember_server() {
	await systemctl is-active decamp-server
	journalctl --sync
	print=$(journalctl -u decamp-server -o cat | grep -oE '[0-9A-F]{2}(:[0-9A-F]{2}){31}' | head -n 1)
	(umask 077; setpriv --reuid decamp --regid decamp --clear-groups decamp token add ci --role operate --ttl 1h --state /var/lib/decamp/server >/root/ci.token)
	decamp server add here https://127.0.0.1:8470 --token-file /root/ci.token --fingerprint "$print"
	decamp server default here
}
# write_plan NAME TRANSPORT writes a plan that migrates web01 into the folder /srv/vm/NAME.
write_plan() {
	install -d -o decamp -g decamp /srv/vm/$1
	cat >/root/$1.yaml <<-END
	version: 1
	name: $1
	source: {url: "esxi://root@127.0.0.1:8443", credentials: {name: lab}}
	vms: [{vm: web01, to: ["dir:/srv/vm/$1"], transport: $2}]
	END
}
copies() { decamp status $1 --all --json | grep -q '"step":"copy"'; }
ended() { decamp status $1 --json | grep -q '"state":"ended"'; }
value() { systemctl show --property $2 --value $1; }
`

// dropInOf returns the lines for [Service] that docs/services.md lists for a use.
func dropInOf(t *testing.T, use string) string {
	t.Helper()
	text, err := os.ReadFile("../docs/services.md")
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("(?m)^\\| " + regexp.QuoteMeta(use) + " \\|[^|]*\\|(.*)\\|$").FindSubmatch(text)
	if row == nil {
		t.Fatalf("docs/services.md has no row for %s", use)
	}
	lines := "[Service]\n"
	for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(string(row[1]), -1) {
		lines += m[1] + "\n"
	}
	return lines
}

// copyPackage copies the deb of a program into a root, and returns its path there.
func copyPackage(t *testing.T, root, folder, program, version string) string {
	t.Helper()
	return copyInto(t, root, filepath.Join(folder, program+"_"+version+"-1_"+runtime.GOARCH+".deb"))
}

// The server runs as documented. It migrates without capabilities, and lands with the documented drop-in. A VM continues
// after a kill and a stop of the server. An upgrade of the package does not stop the server, a purge does. systemd
// restarts the server after a hang.
func TestServerRunsUnderSystemd(t *testing.T) {
	b, root := requireRelease(t), newDebian(t)
	lab := copyPackage(t, root, b.out, "decamp-lab", b.version)
	old := copyPackage(t, root, b.before, "decamp", previous)
	current := copyPackage(t, root, b.out, "decamp", b.version)
	if err := os.WriteFile(filepath.Join(root, "root/landing.conf"), []byte(dropInOf(t, "`landing`")), 0o600); err != nil {
		t.Fatal(err)
	}
	out := runUnderSystemd(t, root, `dpkg --install `+old+` `+lab+`
start_lab
drop_in decamp-server lab <<-END
	[Service]
	LoadCredential=lab:/etc/decamp/lab.password
END
install -d -o decamp -g decamp /srv/vm
echo 'DECAMP_SERVE_OPTIONS=--offer /srv/vm' >/etc/decamp/server.env
decamp runs && decamp status # create files of root
systemctl enable --now decamp.target decamp-server
remember_server
decamp token add prometheus --role view --state /var/lib/decamp/server || echo "token of root: exit code $?"
decamp runs --state /var/lib/decamp/server
echo "state: $(value decamp-server ActiveState) $(value decamp-server User)"
grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/$(value decamp-server MainPID)/status
systemd-analyze security decamp-server | tail -n 1

echo '# upgrade'
before=$(value decamp-server MainPID)
dpkg --install `+current+`
[ "$(value decamp-server MainPID)" = "$before" ]
readlink /proc/$before/exe
systemctl restart decamp-server
echo "restarted: $(decamp status --json | head -c 1)"

echo '# kill'
write_plan killed https
decamp plan run /root/killed.yaml --detach
await copies killed
kill -KILL $(value decamp-server MainPID)
await ended killed
echo "restarts after the kill: $(value decamp-server NRestarts)"
decamp status killed --all

echo '# stop'
write_plan stopped nfc
decamp plan run /root/stopped.yaml --detach
await copies stopped
systemctl stop decamp-server
echo "stopped: $(value decamp-server Result) $(value decamp-server ExecMainStatus)"
systemctl start decamp-server
await ended stopped
decamp status stopped --all

echo '# landing'
write_plan denied landing
decamp plan run /root/denied.yaml || echo "exit code $?"
decamp status denied/web01
drop_in decamp-server landing </root/landing.conf
systemctl restart decamp-server
write_plan landed landing
decamp plan run /root/landed.yaml
systemd-analyze security decamp-server | tail -n 1

echo '# hang'
kill -STOP $(value decamp-server MainPID)
restarted() { [ "$(value decamp-server NRestarts)" -gt 0 ]; }
await restarted
await systemctl is-active decamp-server
echo "result of the hang: $(journalctl -u decamp-server | grep -c 'Watchdog timeout')"

echo '# socket'
systemctl disable --now decamp-server
systemctl enable --now decamp-server.socket
echo "before a connection: $(value decamp-server ActiveState)"
decamp status
echo "after it: $(value decamp-server ActiveState)"
systemctl restart --no-block decamp-server
for i in 1 2 3 4 5; do
	decamp status
done
systemctl stop decamp.target
echo "stopped with the target: $(value decamp-server ActiveState) $(value decamp-server.socket ActiveState)"
systemctl start decamp.target
echo "started with the target: $(value decamp-server.socket ActiveState)"

echo '# logs'
run=$(decamp status killed --all --json | grep -oE '"runs":\["[^"]*' | cut -d '"' -f 4)
journalctl --sync
echo "entries of the run: $(journalctl RUN=$run -o cat | wc -l)"
echo "entries of the plan: $(journalctl PLAN=killed -o cat | wc -l)"
echo "healthy server not notified: $(journalctl -u decamp-server -o cat | grep -c 'watchdog not notified' || true)"
for plan in killed stopped landed; do
	decamp verify /srv/vm/$plan/web01
done
echo "accessible to others:$(find /var/lib/decamp -mindepth 1 -maxdepth 1 -perm /077)"
dpkg --purge decamp
echo "removed: $(value decamp-server ActiveState) $(value decamp-server.socket ActiveState)"
`)
	t.Log(out)
	expectText(t, out, "token of root: exit code 4\n", "sudo -u decamp decamp token add prometheus --role view --state /var/lib/decamp/server\n", "No runs in /var/lib/decamp/server.\n", "state: active decamp\n", "CapEff:	0000000000000000\nCapBnd:	0000000000000000\nNoNewPrivs:	1\nSeccomp:	2\n",
		"decamp: to use this version, drain the workers and run: systemctl restart decamp-server.service", "/usr/bin/decamp (deleted)", "restarted: {",
		"restarts after the kill: 1\n", "Plan killed, ended: 1 VM (1 done)", "stopped: success 0\n", "Plan stopped, ended: 1 VM (1 done)",
		"exit code 6\n", "the capability CAP_NET_BIND_SERVICE", "Plan landed, ended: 1 VM (1 done)", "result of the hang: 1\n",
		"before a connection: inactive\n", "after it: active\n", "stopped with the target: inactive inactive\n", "started with the target: active\n", "healthy server not notified: 0\n", "accessible to others:\n", "removed: inactive inactive\n")
	if regexp.MustCompile(`entries of the (run|plan): 0`).MatchString(out) {
		t.Error("the journal does not contain the fields of a run")
	}
	checkExposure(t, out)
}

// checkExposure fails the test if the output of systemd-analyze security has a rating above 2.0.
func checkExposure(t *testing.T, out string) {
	t.Helper()
	ratings := regexp.MustCompile(`exposure level for (\S+): ([0-9.]+)`).FindAllStringSubmatch(out, -1)
	if len(ratings) == 0 {
		t.Error("systemd-analyze rated no unit")
	}
	for _, m := range ratings {
		if rating, err := strconv.ParseFloat(m[2], 64); err != nil || rating > 2 {
			t.Errorf("systemd-analyze rates %s %s", m[1], m[2])
		}
	}
}

// A worker and a server run as documented with PostgreSQL. Their secrets are credentials of systemd; the fleet key is
// encrypted. A worker that is stopped continues its VM after the next start.
func TestWorkerRunsUnderSystemd(t *testing.T) {
	b := requireRelease(t)
	root := unpackDebian(t, "../build/install-postgresql.tar", "bookworm", "systemd,postgresql")
	packages := copyPackage(t, root, b.out, "decamp", b.version) + " " + copyPackage(t, root, b.out, "decamp-lab", b.version)
	out := runUnderSystemd(t, root, `dpkg --install `+packages+`
start_lab
echo "listen_addresses = '127.0.0.1'" >/etc/postgresql/15/main/conf.d/listen.conf
systemctl start postgresql@15-main
setpriv --reuid postgres --regid postgres --clear-groups psql --quiet --command "CREATE ROLE decamp LOGIN PASSWORD 'c0rrect-h0rse'" --command 'CREATE DATABASE decamp OWNER decamp'
decamp key new /root/fleet.key
mkdir -p /etc/credstore.encrypted
systemd-creds encrypt --name=fleet.key /root/fleet.key /etc/credstore.encrypted/decamp.fleet.key
(umask 077; echo '127.0.0.1:5432:decamp:decamp:c0rrect-h0rse' >/root/pgpass)
install -m 600 /root/pgpass /etc/credstore/decamp.pgpass
for unit in decamp-server decamp-worker; do
	drop_in $unit secrets <<-END
		[Service]
		LoadCredential=
		LoadCredentialEncrypted=fleet.key:decamp.fleet.key
		LoadCredential=access.yaml:decamp.access.yaml
		LoadCredential=pgpass:decamp.pgpass
		LoadCredential=lab:/etc/decamp/lab.password
	END
done
install -d -o decamp -g decamp /srv/vm
echo 'DECAMP_DB=postgres://decamp@127.0.0.1/decamp' >/etc/decamp/server.env
systemctl enable --now decamp.target decamp-server decamp-worker
echo "worker without worker.env: $(value decamp-worker ActiveState)"
printf 'DECAMP_DB=postgres://decamp@127.0.0.1/decamp\nDECAMP_WORKER_OPTIONS=--offer /srv/vm --name rack1\n' >/etc/decamp/worker.env
systemctl start decamp-worker
echo "worker: $(value decamp-worker ActiveState)"
remember_server
systemd-analyze security decamp-worker | tail -n 1

write_plan returned https
decamp plan run /root/returned.yaml --detach
await copies returned
systemctl stop decamp-worker
echo "stopped: $(value decamp-worker Result) $(value decamp-worker ExecMainStatus)"
systemctl start decamp-worker
await ended returned
decamp status returned --all
decamp verify /srv/vm/returned/web01
systemctl stop decamp.target
echo "after the stop of the target: $(value decamp-server ActiveState) $(value decamp-worker ActiveState)"
journalctl --sync
echo "secrets in the journal: $(journalctl -o export | grep -cF -e c0rrect-h0rse -e "$(cat /etc/decamp/lab.password)" -e "$(tail -n 1 /root/fleet.key)" || true)"
`)
	t.Log(out)
	expectText(t, out, "worker without worker.env: inactive\n", "worker: active\n", "stopped: success 0\n", "Plan returned, ended: 1 VM (1 done)", "rack1",
		"after the stop of the target: inactive inactive\n", "secrets in the journal: 0\n")
	checkExposure(t, out)
}
