# What runs on a node of Proxmox VE, by its own perl, as long as somebody listens:
#
#   check NODE         whether all is there that the other two take
#   write NODE VOLUME  NBD on stdin and stdout, spoken by qemu-nbd
#   sum   NODE VOLUME  answers "OFFSET LENGTH" with a line for each MiB: z for zeros, else its SHA-256
#
# It begins with one line, "decamp: ready HOW" or "decamp: no WHY WORDS".
# What only one of them takes is loaded by it: each login starts this anew.
use strict;
use warnings;
use Fcntl qw(:DEFAULT :flock);

my ($mode, $node, $volume) = @ARGV;
my $mib = 1 << 20;
my $held;    # the file that says that we have the volume
$| = 1;
$SIG{PIPE} = 'IGNORE';

sub refuse { my ($why, $words) = @_; $words =~ s/\s+/ /g; unlink $held if $held; print "decamp: no $why $words\n"; exit 9 }

sub tool {
	my ($name) = @_;
	for (split /:/, $ENV{PATH}) { return "$_/$name" if -x "$_/$name" }
	refuse('tool', $name);
}

# said runs a program and returns its first line; its errors are for who reads ours.
sub said {
	open my $h, '-|', @_ or refuse('tool', "$_[0]: $!");
	my $line = <$h> // '';
	1 while <$h>;
	close $h or refuse('volume', "@_ failed");
	chomp $line;
	return $line;
}

sub check {
	my $here = said(tool('uname'), '-n');
	$here =~ s/\..*//;
	refuse('node', $here) if $here ne $node;
	refuse('root', getpwuid($>) // $>) if $> != 0;
	tool($_) for qw(pvesm qemu-nbd dd);
}

# found is where the volume is. Proxmox leaves those of LVM inactive after a restart, and does with its own
# library what it does before it starts a guest.
sub found {
	my $path = said(tool('pvesm'), 'path', $volume);
	return $path if $path !~ m{^/} || -e $path;
	open my $out, '>&', \*STDOUT;
	open STDOUT, '>&', \*STDERR;
	my $done = eval { require PVE::Storage; PVE::Storage::activate_volumes(PVE::Storage::config(), [$volume]); 1 };
	my $why = $@;
	open STDOUT, '>&', $out;
	refuse('inactive', $done ? "$path is not there" : "$path: $why") if !-e $path;
	return $path;
}

# alone ends whoever has the volume still: one of ours whose other side has gone. The lock goes with the
# file and not with its name, which goes away with us: so the name is looked up once more.
sub alone {
	(my $name = $volume) =~ s/[^\w.-]/_/g;
	$name = "/run/lock/decamp-$name";
	for my $try (1 .. 155) {
		sysopen my $lock, $name, O_RDWR | O_CREAT | O_NOFOLLOW, 0600 or refuse('busy', "$name: $!");
		if (flock $lock, LOCK_EX | LOCK_NB) {
			next if ((stat $lock)[1] // 0) != ((stat $name)[1] // 0);
			truncate $lock, 0;
			syswrite $lock, "$$\n";
			$held = $name;
			return $lock;
		}
		sysread $lock, my $pid, 20;
		if (defined $pid && $pid =~ /^(\d+)\n/ && open my $h, '<', "/proc/$1/cmdline") {
			my $line = join '', <$h>;
			kill 'TERM', 0 + $pid =~ s/\s.*//sr if $line =~ /decamp: ready/ && index($line, $volume) >= 0;
		}
		again($try);
	}
	refuse('busy', 'another process has it');
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

# again waits before the nth look at what should be there in a moment: from a few milliseconds to a tenth of a second.
sub again { my ($n) = @_; select undef, undef, undef, $n < 6 ? 0.003 * 2 ** ($n - 1) : 0.1 }

# ended ends programs. One that does not go by itself, as qemu-nbd does not where its client broke off at the wrong
# time, is killed: what it did not flush nobody counts on.
sub ended {
	my @pids = @_;
	kill 'TERM', @pids;
	for my $pid (@pids) {
		for my $try (1 .. 35) {
			last if waitpid $pid, POSIX::WNOHANG();
			again($try);
			kill 'KILL', $pid if $try == 34;
		}
	}
}

# serve starts qemu-nbd on a socket that nobody else sees, and joins our ends to it. It ends with the
# connection.
sub serve {
	require Socket; # IO::Socket takes twice the time to load
	require POSIX;
	my $lock = alone();
	my $path = found();
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
	$SIG{TERM} = sub { ended($nbd, $up // ()); unlink $held; POSIX::_exit(9) };
	# Who cannot open the volume ends without a greeting.
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
	ended($up, $nbd); # which waits for others where nobody greeted it
	unlink $held;
}

# sums reads from the medium where the file system lets one.
sub sums {
	require Digest::SHA;
	my $path = found();
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
