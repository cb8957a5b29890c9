#!/usr/bin/env bash
# Restores a backup of Redis and of the blobs' volume (docs/operations.md), then starts the federation.
#
#   k8s/restore.sh NAMESPACE RELEASE FOLDER    FOLDER has redis.rdb and blobs.tar
#   k8s/restore.sh NAMESPACE RELEASE NAME      a backup that the chart's CronJob made
#
# Variables: KUBECTL, REDIS_IMAGE; BLOBS_CLAIM and BACKUPS_CLAIM, by default the claims that the release's
# worker and CronJob mount.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
[ $# = 3 ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2; exit 2; }
namespace=$1 release=$2 backup=$3
kubectl() { command ${KUBECTL:-kubectl} --namespace "$namespace" "$@"; }
image=${REDIS_IMAGE:-redis:7.4-bookworm}

claim() { # object, path of its pod's specification, volume
  local path="{$2.volumes[?(@.name==\"$3\")].persistentVolumeClaim.claimName}" name
  name=$(kubectl get "$1" -o "jsonpath=$path")
  [ -n "$name" ] || { echo "$1 mounts no claim as $3" >&2; return 1; }
  echo "$name"
}
if [ -d "$backup" ]; then
  for file in redis.rdb blobs.tar; do
    test -s "$backup/$file" || { echo "$backup has no $file" >&2; exit 1; }
  done
  volume="emptyDir: {sizeLimit: 1Mi}"
else
  backups=${BACKUPS_CLAIM:-$(claim "cronjob/$release-backup" .spec.jobTemplate.spec.template.spec backups)}
  volume="persistentVolumeClaim: {claimName: $backups, readOnly: true}"
fi
blobs=${BLOBS_CLAIM:-$(claim "statefulset/$release-worker" .spec.template.spec blobs)}
part() { # a file of the backup
  if [ -d "$backup" ]; then cat "$backup/$1"; else
    kubectl exec "$release-restore" -c blobs -- cat "/backups/$backup/$1"
  fi
}

components=("deployment/$release-api" "statefulset/$release-worker" "statefulset/$release-redis")
declare -A replicas
volumes=unchanged
# Nothing stops until all of them are found. A restore that failed leaves 0 replicas and an annotation.
for one in "${components[@]}"; do
  count=$(kubectl get "$one" -o 'jsonpath={.spec.replicas}')
  if [ "$count" = 0 ]; then
    count=$(kubectl get "$one" -o 'jsonpath={.metadata.annotations.stopped-replicas}')
    [ -z "$count" ] || volumes=incomplete
  fi
  replicas[$one]=${count:-0}
done

start() {
  local one
  for one in statefulset/$release-redis statefulset/$release-worker deployment/$release-api; do
    kubectl scale "$one" --replicas "${replicas[$one]}"
    kubectl annotate "$one" stopped-replicas-
    "$@"
  done
}
rollout() { kubectl rollout status "$one" --timeout 300s; }
finish() {
  code=$?
  trap - EXIT
  [ "$code" != 0 ] || exit 0
  set +e
  kubectl delete "pod/$release-restore" --ignore-not-found
  # With half of a backup, the services would make a new federation, or refuse their clients.
  [ "$volumes" = incomplete ] || start
  echo "the restore failed; the volumes are $volumes" >&2
  [ "$volumes" != incomplete ] || echo "the services stay stopped until you run this script again" >&2
  exit "$code"
}
trap finish EXIT
trap 'exit 143' TERM INT

for one in "${components[@]}"; do
  kubectl annotate --overwrite "$one" "stopped-replicas=${replicas[$one]}"
  kubectl scale "$one" --replicas 0
done
for component in api worker redis; do
  kubectl wait --for delete pod --timeout 120s \
    -l "app.kubernetes.io/instance=$release,app.kubernetes.io/component=$component"
done

container() { # name, user, group, mounts
  cat << YAML
    - name: $1
      image: $image
      # The shell handles SIGTERM, so that the pod ends at once.
      command: [sh, -c, "trap exit TERM; while :; do sleep 1; done"]
      resources: {requests: {cpu: 50m, memory: 64Mi}, limits: {memory: 256Mi}}
      securityContext:
        runAsUser: $2
        runAsGroup: $2
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {drop: [ALL]}
      volumeMounts: $3
YAML
}
# Each container runs as the user of the pod that later reads the volume, because not every volume
# supports fsGroup.
manifest=$(
  cat << YAML
apiVersion: v1
kind: Pod
metadata:
  name: $release-restore
  labels: {app.kubernetes.io/name: rampart, app.kubernetes.io/instance: $release, app.kubernetes.io/component: restore}
spec:
  automountServiceAccountToken: false
  enableServiceLinks: false
  restartPolicy: Never
  terminationGracePeriodSeconds: 5
  securityContext:
    runAsNonRoot: true
    runAsUser: 10001
    runAsGroup: 10001
    fsGroup: 10001
    seccompProfile: {type: RuntimeDefault}
  containers:
$(container redis 999 '[{name: redis, mountPath: /data}]')
$(container blobs 10001 '[{name: blobs, mountPath: /blobs}, {name: backups, mountPath: /backups, readOnly: true}]')
  volumes:
    - {name: redis, persistentVolumeClaim: {claimName: data-$release-redis-0}}
    - {name: blobs, persistentVolumeClaim: {claimName: $blobs}}
    - {name: backups, $volume}
YAML
)
kubectl apply -f - <<< "$manifest"
kubectl wait --for condition=Ready "pod/$release-restore" --timeout 300s

volumes=incomplete
part redis.rdb | kubectl exec -i "$release-restore" -c redis -- \
  sh -c "$(cat "$here/chart/files/restore-redis.sh")" restore /data
kubectl exec "$release-restore" -c blobs -- find /blobs -mindepth 1 -delete
# Without the entry ".": tar may not change the mode of the volume's folder, which can belong to root.
part blobs.tar | kubectl exec -i "$release-restore" -c blobs -- \
  tar -C /blobs --no-recursion --anchored --exclude . -xf -
kubectl delete "pod/$release-restore" --ignore-not-found
volumes=restored
start rollout
echo "restored $backup; if the federation was paused then, run: rampart resume"
