JUDGED = ()
