
# Names come from the store.
complete -c plumb -a '(plumb __complete -- (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null)'
