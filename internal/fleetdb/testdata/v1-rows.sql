UPDATE meta SET version = 1, rev = 40, entry = 1;
INSERT INTO plans (name, text, folder, author, created, listed, ord, state, failure, ended, rev) VALUES ('wave1', 'version: 1', '/etc/decamp', 'ann', 1800000000000000, 1800000001000000, 'pause', 'running', '', 0, 30);
INSERT INTO vms (plan, vm, seq, warm, listing, spec, state, step, waits, worker, storage, epoch, asks, holds, since, expected, ord, attempts, not_before, began, ended, failure, rev) VALUES ('wave1', 'vm-42', 1, TRUE, '{"name":"web1","source":"esx1:443","host":"esx1","datastore":"ds1","to":["dir:/srv/vm"],"runs":["0123abcd"],"priority":2,"disks":2,"bytes":42949672960,"line":7}', '{"to":["dir:/srv/vm"]}', 'running', 'copy', '', 'w1', '["st-1"]', 3, '', TRUE, 1800000002000000, 3600000000000, '', 1, 0, 1800000002000000, 0, '{"kind":"unreachable","text":"no route"}', 40);
INSERT INTO leases (name, owner, epoch, until) VALUES ('worker:w1', 'w1', 2, 1800000005000000);
INSERT INTO workers (name, version, offers, vms, drains, rev) VALUES ('w1', '0.9', '{"/srv/vm":"st-1"}', 10, FALSE, 12);
INSERT INTO limits (name, units, rev) VALUES ('host:esx1/vms', 4, 13);
INSERT INTO progress (plan, vm, at, doc) VALUES ('wave1', 'vm-42', 1800000003000000, '{"plan":"wave1","vm":"vm-42","total":10,"done":5,"rate":1,"at":"0001-01-01T00:00:00Z"}');
INSERT INTO audit (id, at, doc) VALUES (1, 1800000000000000, '{"id":1,"time":"2027-01-15T08:00:00Z","user":"ann","role":"operate","from":"local","action":"plan submit","on":"wave1"}');
INSERT INTO records (kind, id, doc) VALUES ('leftover', 'a1', '{"n":1}');
