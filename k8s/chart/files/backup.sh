# Pauses the run between two rounds, if there is one, has Redis copied, then copies the blobs, and resumes it.
# Redis points to blobs, and a blob goes out of use only at the end of a round. So the copy of the
# blobs contains all to which the copy of Redis points.
set -eu
name=$(date -u +%Y-%m-%dT%H-%M-%SZ)
part=/backups/$name.part

run=$(rampart runs --json | python -c "
import json, sys
live = ('running', 'paused', 'stopping')
print(*[one['run'] for one in json.load(sys.stdin) if one['state'] in live])")

is() { # an expression of `status`, the run's status
  rampart status --run "$run" --json |
    python -c "import json, sys; status = json.load(sys.stdin); sys.exit(not ($1))"
}
left_paused() { # by a backup that did not end, for example because its node failed
  rampart audit --json | python -c "
import json, sys
steps = [one for one in json.load(sys.stdin) if one['act'] in ('pause', 'resume')]
last = [(one['act'], one['reason']) for one in steps if one['target'] == sys.argv[1]][-1:]
sys.exit(last != [('pause', 'backup')])" "$run"
}
prune() { # the number of newest backups to keep
  find /backups -maxdepth 1 -name '*Z' | sort -r | tail -n "+$(($1 + 1))" | xargs -r rm -rf
}
paused= child=
finish() {
  code=$?
  trap '' TERM INT
  [ -z "$child" ] || kill "$child" 2> /dev/null || true
  [ "$code" = 0 ] || touch /steps/failed
  # The last evaluation does not pause, so the run may have ended.
  [ -z "$paused" ] || rampart resume "$run" --reason backup || is 'status["phase"] == "done"'
  exit "$code"
}
trap finish EXIT
trap 'exit 143' TERM INT
# While a command runs in the foreground, a shell handles no signal.
interruptible() {
  "$@" &
  child=$! failed=0
  wait "$child" || failed=$?
  child=
  return "$failed"
}

rm -rf /backups/*.part
# The volume has room for KEEP backups; the newest one is never deleted before there is another.
prune "$((KEEP > 1 ? KEEP - 1 : 1))"
mkdir "$part"
if [ -n "$run" ]; then
  if is 'status["status"] == "running"'; then
    paused=yes
    rampart pause "$run" --reason backup
  elif is 'status["status"] == "paused"' && left_paused; then
    paused=yes
  fi
  until is 'status["phase"] not in ("collecting", "aggregating", "evaluating")'; do
    interruptible sleep 1
  done
fi

echo "$part" > /steps/paused
until [ -e /steps/copied ]; do
  [ ! -e /steps/failed ]
  interruptible sleep 1
done
# tar exits with 1 if a file disappears or a folder changes while tar reads. Only unused blobs disappear: a
# blob never changes, and no round runs.
interruptible tar -C /var/lib/rampart/blobs --exclude './*/*/tmp' -cf "$part/blobs.tar" . || [ $? = 1 ]
interruptible sync -f "$part"
mv "$part" "/backups/$name"
echo "made $name"
prune "$KEEP"
