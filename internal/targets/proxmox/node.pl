# decamp runs this script on a node of Proxmox VE, over SSH, until the connection ends:
#
#   check NODE         check that the node has the programs that the other modes require
#   write NODE VOLUME  serve the volume over NBD on stdin and stdout, with qemu-nbd
#   sum   NODE VOLUME  answer "OFFSET LENGTH" with a line for each MiB: z for zeros, else its SHA-256
#
# The first line of output is "decamp: ready HOW" or "decamp: no WHY WORDS".
# Each mode loads its modules itself, because each login starts this script.
use strict;
use warnings;
use Fcntl qw(:DEFAULT :flock);

my ($mode, $node, $volume) = @ARGV;
my $mib = 1 << 20;
my $lock_name;    # path of the lock file of the volume; undef without a lock
$| = 1;
$SIG{PIPE} = 'IGNORE';

sub refuse { my ($why, $words) = @_; $words =~ s/\s+/ /g; unlink $lock_name if $lock_name; print "decamp: no $why $words\n"; exit 9 }

sub tool {
	my ($name) = @_;
	for (split /:/, $ENV{PATH}) { return "$_/$name" if -x "$_/$name" }
	refuse('tool', $name);
}

# first_line runs a program and returns its first line. Its errors go to our stderr.
sub first_line {
	open my $h, '-|', @_ or refuse('tool', "$_[0]: $!");
	my $line = <$h> // '';
	1 while <$h>;
	close $h or refuse('volume', "@_ failed");
	chomp $line;
	return $line;
}

sub check {
	my $here = first_line(tool('uname'), '-n');
	$here =~ s/\..*//;
	refuse('node', $here) if $here ne $node;
	refuse('root', getpwuid($>) // $>) if $> != 0;
	tool($_) for qw(pvesm qemu-nbd dd);
}

# volume_path returns the path of the volume. Proxmox VE leaves LVM volumes inactive after a restart, so they are
# activated with its library, as before the start of a guest.
sub volume_path {
	my $path = first_line(tool('pvesm'), 'path', $volume);
	return $path if $path !~ m{^/} || -e $path;
	open my $out, '>&', \*STDOUT;
	open STDOUT, '>&', \*STDERR;
	my $done = eval { require PVE::Storage; PVE::Storage::activate_volumes(PVE::Storage::config(), [$volume]); 1 };
	my $why = $@;
	open STDOUT, '>&', $out;
	refuse('inactive', $done ? "$path is not there" : "$path: $why") if !-e $path;
	return $path;
}

# lock_volume returns the lock of the volume. It ends an earlier decamp process that still has the lock because its
# client has gone. The name of a lock file is removed at the end, so a lock counts only if the file still has the name.
sub lock_volume {
	(my $name = $volume) =~ s/[^\w.-]/_/g;
	$name = "/run/lock/decamp-$name";
	for my $try (1 .. 155) {
		sysopen my $lock, $name, O_RDWR | O_CREAT | O_NOFOLLOW, 0600 or refuse('busy', "$name: $!");
		if (flock $lock, LOCK_EX | LOCK_NB) {
			next if ((stat $lock)[1] // 0) != ((stat $name)[1] // 0);
			truncate $lock, 0;
			syswrite $lock, "$$\n";
			$lock_name = $name;
			return $lock;
		}
		sysread $lock, my $pid, 20;
		if (defined $pid && $pid =~ /^(\d+)\n/ && open my $h, '<', "/proc/$1/cmdline") {
			my $line = join '', <$h>;
			kill 'TERM', 0 + $pid =~ s/\s.*//sr if $line =~ /decamp: ready/ && index($line, $volume) >= 0;
		}
		pause($try);
	}
	refuse('busy', 'another process uses the volume');
}

sub direct {
	my ($path) = @_;
	return 'remote' if $path !~ m{^/};
	return sysopen(my $h, $path, O_RDONLY | O_DIRECT) ? 'direct' : 'cached';
}

sub copy {
	my ($from, $to) = @_;
	while (my $n = sysread $from, my $buffer, 1 << 18) {
		for (my $at = 0; $at < $n;) { $at += syswrite($to, $buffer, $n - $at, $at) // return }
	}
}

# pause waits before the nth attempt: from 3 ms to a tenth of a second.
sub pause { my ($n) = @_; select undef, undef, undef, $n < 6 ? 0.003 * 2 ** ($n - 1) : 0.1 }

# end_processes ends processes, and kills those that do not end: qemu-nbd may hang if its client disconnected at the
# wrong moment. Data that it has not flushed is not confirmed to decamp.
sub end_processes {
	my @pids = @_;
	kill 'TERM', @pids;
	for my $pid (@pids) {
		for my $try (1 .. 35) {
			last if waitpid $pid, POSIX::WNOHANG();
			pause($try);
			kill 'KILL', $pid if $try == 34;
		}
	}
}

# serve starts qemu-nbd on a private socket, and connects it to stdin and stdout. It ends with the connection.
sub serve {
	require Socket; # IO::Socket takes twice the time to load
	require POSIX;
	my $lock = lock_volume();
	my $path = volume_path();
	my $how = direct($path);
	my $dir = "/run/decamp-$$";
	mkdir $dir, 0700 or -d $dir or refuse('nbd', "$dir: $!"); # a process with this number was killed
	unlink "$dir/s";
	my $at = Socket::pack_sockaddr_un("$dir/s");
	socket my $listener, Socket::AF_UNIX(), Socket::SOCK_STREAM(), 0 or refuse('nbd', "socket: $!");
	bind $listener, $at and listen $listener, 1 or refuse('nbd', "$dir: $!");
	my $nbd = fork // refuse('nbd', $!);
	if (!$nbd) {
		if (fileno($listener) == 3) { fcntl $listener, F_SETFD, 0 } else { POSIX::dup2(fileno $listener, 3) }
		open STDIN, '<', '/dev/null';
		open STDOUT, '>&', \*STDERR;
		@ENV{qw(LISTEN_PID LISTEN_FDS)} = ($$, 1);
		my @nbd = (tool('qemu-nbd'), '-f', 'raw', '--discard=unmap', '--cache=' . ($how eq 'cached' ? 'writeback' : 'none'), $path);
		exec { $nbd[0] } @nbd or POSIX::_exit(9);
	}
	socket my $s, Socket::AF_UNIX(), Socket::SOCK_STREAM(), 0 or refuse('nbd', "socket: $!");
	connect $s, $at or refuse('nbd', "$dir: $!");
	unlink "$dir/s";
	rmdir $dir;
	close $listener;
	my $up;
	$SIG{TERM} = sub { end_processes($nbd, $up // ()); unlink $lock_name; POSIX::_exit(9) };
	# qemu-nbd ends without a greeting if it cannot open the volume.
	my $n = sysread $s, my $hello, 18;
	refuse('nbd', "qemu-nbd does not open $path") if !$n;
	print "decamp: ready $how\n";
	syswrite STDOUT, $hello;
	$up = fork // refuse('nbd', $!);
	if (!$up) {
		$SIG{TERM} = 'DEFAULT';
		close $lock;
		copy(\*STDIN, $s);
		shutdown $s, 1;
		POSIX::_exit(0);
	}
	copy($s, \*STDOUT);
	end_processes($up, $nbd); # qemu-nbd waits for another client if the handshake was not completed
	unlink $lock_name;
}

# sums reads from the medium, if the file system supports O_DIRECT.
sub sums {
	require Digest::SHA;
	my $path = volume_path();
	my $how = direct($path);
	print "decamp: ready $how\n";
	exit if $how eq 'remote';
	while (<STDIN>) {
		my ($off, $left) = /^(\d+) (\d+)$/ or exit 9;
		for my $flags ($how eq 'direct' ? ',direct' : (), '') {
			open my $dd, '-|', tool('dd'), "if=$path", 'bs=1M', "skip=$off", "count=$left", "iflag=skip_bytes,count_bytes$flags", 'status=none';
			while ($left > 0) {
				my $want = $left < $mib ? $left : $mib;
				last if (read($dd, my $data, $want) // 0) != $want;
				print $data eq "\0" x $want ? "z\n" : Digest::SHA::sha256_hex($data) . "\n";
				$off += $want;
				$left -= $want;
			}
			close $dd;
		}
		if ($left > 0) { print "e $path cannot be read at $off\n"; exit 9 }
	}
}

check();
if ($mode eq 'write') { serve() }
elsif ($mode eq 'sum') { sums() }
else { print "decamp: ready direct\n" }
